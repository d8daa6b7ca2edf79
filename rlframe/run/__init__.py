"""What a run writes and shows while it goes on: its folder, metrics, progress, and reports of crashes."""
