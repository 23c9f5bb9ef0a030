"""What all controlled systems share: the contract, policies, training, adaptation."""
