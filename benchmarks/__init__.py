"""What `make bench` measures; run.py lists the modules."""
