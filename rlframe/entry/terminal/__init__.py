"""What the command line shows: progress displays, and the lines at the start and the end of a run."""
