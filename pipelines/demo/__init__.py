"""`assay demo`: a real server, its load and a proved controller that acts, for two minutes on this machine."""
