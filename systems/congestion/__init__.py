"""A sender of packets that sets its rate: congestion control (thesis, appendix A.6; Aurora, Jay et al., ICML 2019)."""
