"""What is published: wheel, types, and the versions it works beside."""
