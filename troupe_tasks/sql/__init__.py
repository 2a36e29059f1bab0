"""Database query: an explorer reads a database, a writer answers with one SQL query."""

from troupe_tasks.sql.family import Sql, SqlParams

__all__ = ["Sql", "SqlParams"]
