package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// phase is a number of applies by some clients. The phases of a cluster follow one another.
type phase struct {
	name             string
	clients, applies int
}

var phases = []phase{
	{"1 client, new log", 1, 150},
	{"16 clients", 16, 2000},
	{"1 client, later", 1, 300},
}

// measure prints the rates of both modes in rounds, and their ratios. Each cluster is new. Rounds take
// turns in which mode is first.
func measure(directory string, rounds int) error {
	rates := map[string][]float64{}
	for round := range rounds {
		modes := []string{"onewrite", "wal"}
		if round%2 == 1 {
			slices.Reverse(modes)
		}
		for _, mode := range modes {
			found, err := ratesOf(filepath.Join(directory, fmt.Sprint(round, mode)), mode)
			if err != nil {
				return err
			}
			fmt.Printf("round %d %s: %.0f\n", round, mode, found)
			for at, rate := range found {
				name := phases[at].name
				rates[name+mode] = append(rates[name+mode], rate)
			}
		}
	}
	for _, phase := range phases {
		report(phase.name, rates[phase.name+"onewrite"], rates[phase.name+"wal"])
	}
	return nil
}

func ratesOf(directory, mode string) (rates []float64, err error) {
	c, err := startCluster(directory, mode)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.end()) }()
	for _, phase := range phases {
		start := time.Now()
		if err = c.applyAll(phase.clients, phase.applies); err != nil {
			return nil, err
		}
		rates = append(rates, float64(phase.applies)/time.Since(start).Seconds())
	}
	return rates, nil
}

func report(name string, ours, stock []float64) {
	var ratios []float64
	for at := range ours {
		ratios = append(ratios, ours[at]/stock[at])
	}
	logarithms := 0.0
	for _, ratio := range ratios {
		logarithms += math.Log(ratio)
	}
	mean := math.Exp(logarithms / float64(len(ratios)))
	fmt.Printf("%s: onewrite %.0f/s, wal %.0f/s, ratio %.2f (%.2f to %.2f in %d rounds)\n", name,
		median(ours), median(stock), mean, slices.Min(ratios), slices.Max(ratios), len(ratios))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// count prints a line before and after some applies, so that system calls between them can be counted.
func count(mode, directory string, clients, applies int) error {
	c, err := startCluster(directory, mode)
	if err != nil {
		return err
	}
	fmt.Println("begin")
	err = c.applyAll(clients, applies)
	fmt.Println("end")
	return errors.Join(err, c.end())
}

// cluster is three nodes in this process, which talk over TCP.
type cluster struct {
	directory string
	nodes     []*node
	leader    *node
}

func startCluster(directory, mode string) (*cluster, error) {
	c := &cluster{directory: directory}
	var addresses []string
	for number := range 3 {
		place := filepath.Join(directory, fmt.Sprint(number))
		if err := os.MkdirAll(place, 0o700); err != nil {
			return nil, errors.Join(err, c.end())
		}
		n, err := startNode("127.0.0.1:0", place, mode)
		if err != nil {
			return nil, errors.Join(err, c.end())
		}
		c.nodes = append(c.nodes, n)
		addresses = append(addresses, string(n.transport.LocalAddr()))
	}
	for _, n := range c.nodes {
		if err := n.join(addresses); err != nil {
			return nil, errors.Join(err, c.end())
		}
	}
	if err := c.awaitLeader(); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

func (c *cluster) awaitLeader() error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, n := range c.nodes {
			if n.State() == raft.Leader && n.apply("first") == nil {
				c.leader = n
				return nil
			}
		}
	}
	return errors.New("no leader within a minute")
}

// applyAll shares the applies out to the clients. Each waits for its own before the next.
func (c *cluster) applyAll(clients, applies int) error {
	row := strings.Repeat("r", 100)
	var taken atomic.Int64
	failures := make([]error, clients)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for failures[client] == nil && taken.Add(1) <= int64(applies) {
				failures[client] = c.leader.apply(row)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

func (c *cluster) end() error {
	var failures []error
	for _, n := range c.nodes {
		failures = append(failures, n.close())
	}
	return errors.Join(append(failures, os.RemoveAll(c.directory))...)
}
