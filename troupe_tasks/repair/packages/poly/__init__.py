"""Polynomials as lists of coefficients, the constant one first."""
