"""Points and walks on a grid."""
