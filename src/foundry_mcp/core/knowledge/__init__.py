"""Hybrid search over a folder of documents, and what is known of a vendor."""
