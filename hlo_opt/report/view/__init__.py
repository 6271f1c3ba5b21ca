"""The page that `hlo-opt view` writes: its data, made here, and the small program in `*.js` that draws it."""
