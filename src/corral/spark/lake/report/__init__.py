"""Reports of a lake: tables, series and alerts, at the terminal and as an HTML page."""
