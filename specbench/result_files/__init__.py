"""Result folders: written so that a kill loses nothing, read so that nothing false gets in."""
