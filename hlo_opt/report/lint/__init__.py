"""Rules about programs: what costs time or memory, at which Python line, and what to write instead. `hlo-opt lint`."""
