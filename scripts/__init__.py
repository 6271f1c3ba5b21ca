"""Tools for people who work on hlo-opt; nothing in `hlo_opt` imports them."""
