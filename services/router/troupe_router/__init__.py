"""The router: REST and the web page in front, job conduct, episode play and membership behind."""
