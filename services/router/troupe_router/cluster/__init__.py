"""The Kubernetes launcher: job components as objects of a namespace. Imports no other room."""
