-- What an event claimed when it was told: the ranks or cards, the cause and the gap, as JSON. A later claim of the same
-- kind is told again only if it is another; its kind then has a number behind it.

ALTER TABLE live_events ADD COLUMN claim TEXT NOT NULL DEFAULT '{}';
