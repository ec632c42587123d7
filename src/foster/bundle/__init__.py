"""The folder that you ship. What it holds and where it stands is known without torch; `folder` reads and writes it."""
