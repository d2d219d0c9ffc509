package store

// WithMigrations opens with other schema versions than this program's.
func (o Options) WithMigrations(scripts ...string) Options {
	o.migrations = []migration{}
	for _, s := range scripts {
		o.migrations = append(o.migrations, migration{script: s})
	}
	return o
}

// Schema1 is the first version's script.
const Schema1 = schema1

// Schema2 is the second version's script.
const Schema2 = schema2

// Schema3 is the third version's script.
const Schema3 = schema3

// WorkTables are the tables of the workflow that Sweep walks.
func WorkTables() []string { return workTables() }

// WithCache opens with a writer that remembers few tasks.
func (o Options) WithCache(tasks int) Options {
	o.cacheMax = tasks
	return o
}

// ReaderMax is how many connections readers have.
const ReaderMax = readerMax
