"""The best of a study again in fresh processes, what that says of it, and which trial is the one to use."""
