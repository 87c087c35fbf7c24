package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const networkTimeout = 10 * time.Second

// rows is the replicated state: what was applied, in order. It is in memory alone, and Raft makes it again
// from its log, which is never cut.
type rows struct {
	sync.Mutex
	all []string
}

func (r *rows) Apply(entry *raft.Log) any {
	r.Lock()
	defer r.Unlock()
	r.all = append(r.all, string(entry.Data))
	return nil
}

func (r *rows) copied() []string {
	r.Lock()
	defer r.Unlock()
	return append([]string{}, r.all...)
}

var errNoSnapshots = errors.New("the log is the only copy, so there are no snapshots")

func (r *rows) Snapshot() (raft.FSMSnapshot, error) { return nil, errNoSnapshots }

func (r *rows) Restore(io.ReadCloser) error { return errNoSnapshots }

// node is one member of a cluster, whose log is in DIRECTORY/raft.db.
type node struct {
	*raft.Raft
	rows      rows
	store     *store
	transport *raft.NetworkTransport
}

func startNode(address, directory, mode string) (*node, error) {
	store, err := openStore(filepath.Join(directory, "raft.db"), mode)
	if err != nil {
		return nil, err
	}
	transport, err := raft.NewTCPTransport(address, nil, 3, networkTimeout, os.Stderr)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	n := &node{store: store, transport: transport}
	cache, err := raft.NewLogCache(512, store)
	if err == nil {
		config := raft.DefaultConfig()
		config.LocalID = raft.ServerID(transport.LocalAddr())
		config.LogLevel = "WARN"
		config.SnapshotThreshold = 1 << 62
		n.Raft, err = raft.NewRaft(config, &n.rows, cache, store, raft.NewInmemSnapshotStore(), transport)
	}
	if err != nil {
		return nil, errors.Join(err, transport.Close(), store.Close())
	}
	return n, nil
}

// join makes the node a member of a cluster of these addresses, unless it is one already.
func (n *node) join(addresses []string) error {
	var servers []raft.Server
	for _, address := range addresses {
		servers = append(servers, raft.Server{ID: raft.ServerID(address), Address: raft.ServerAddress(address)})
	}
	err := n.BootstrapCluster(raft.Configuration{Servers: servers}).Error()
	if errors.Is(err, raft.ErrCantBootstrap) {
		return nil
	}
	return err
}

func (n *node) apply(row string) error {
	return n.Apply([]byte(row), networkTimeout).Error()
}

func (n *node) close() error {
	return errors.Join(n.Shutdown().Error(), n.transport.Close(), n.store.Close())
}
