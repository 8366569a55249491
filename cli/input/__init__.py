"""What commands read: lines, JSON lines and CSV rows of files and pipes."""
