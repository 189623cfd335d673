"""The pages: made-up studies to look at, how soon a large one is painted, and the screenshots of docs/."""
