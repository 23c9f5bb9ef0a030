"""The independent checker: plain NumPy, no code of the search. It begins at `check_proof` (../proof_file.py)."""
