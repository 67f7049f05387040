"""The dashboard: a run, living or finished, in a browser. Nothing here changes a run."""
