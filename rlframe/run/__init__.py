"""The output of a run while it trains: its folder, metrics, progress and crash reports."""
