"""The servers that the scaling campaign drives, one file each."""
