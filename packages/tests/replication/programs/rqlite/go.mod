module onewrite.invalid/rqlite

go 1.24

require github.com/rqlite/rqlite v4.6.0+incompatible // indirect

require (
	github.com/armon/go-metrics v0.3.8 // indirect
	github.com/boltdb/bolt v1.3.1 // indirect
	github.com/hashicorp/go-immutable-radix v1.0.0 // indirect
	github.com/hashicorp/go-msgpack v0.5.5 // indirect
	github.com/hashicorp/golang-lru v0.5.0 // indirect
	github.com/hashicorp/raft v0.1.0 // indirect
	github.com/hashicorp/raft-boltdb v0.0.0-20171010151810-6e5ba93211ea // indirect
	github.com/mattn/go-sqlite3 v1.14.53 // indirect
	golang.org/x/crypto v0.0.0-20190308221718-c2843e01d9a2 // indirect
	golang.org/x/sys v0.0.0-20200122134326-e047566fdf82 // indirect
)

tool github.com/rqlite/rqlite/cmd/rqlited
