"""The commands of `tidemill`, a module each for those that belong together."""
