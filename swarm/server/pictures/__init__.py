"""Pictures that agents send: read from requests, held to limits, named by digest. Nothing is decoded here, and nothing fetched."""
