"""How Tidemill reaches a machine and a person: the installer, the `tidemill` command, the one-machine launcher."""
