"""The gateway's routes, a file per noun; `dependencies` has what they share."""
