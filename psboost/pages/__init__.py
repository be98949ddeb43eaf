"""Pages to read: one HTML file each, without scripts and without a network; does not know how anything was computed."""
