"""Ray actors: how they are started, asked, watched and replaced, and the Ray session that they live in."""
