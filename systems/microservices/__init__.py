"""Microservices (FIRM, chapter 3): an application of many services, who of them is to blame, and what to give it."""
