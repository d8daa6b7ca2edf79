"""Parts of policies that act: actions and their bounds, masks, exploration noise, memories of episodes."""
