"""What controller and agent both need and neither owns: log lines, what systemd is told, files written whole. Standard
library only, and nothing of either half."""
