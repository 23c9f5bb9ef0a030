"""A service whose cores' clock is set once a second: CPU frequency (thesis, section 5.6.2 and appendix A.4)."""
