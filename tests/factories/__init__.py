"""What tests make their worlds from: pools, LLMs, servers, sessions."""
