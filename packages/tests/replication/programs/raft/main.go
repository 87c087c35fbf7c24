// A Raft cluster whose log is kept in SQLite.
//
//	raft node MODE DIRECTORY HTTP ADDRESS...    one node; the first address is its own
//	raft measure DIRECTORY ROUNDS               applies a second in onewrite and in wal
//	raft count MODE DIRECTORY CLIENTS APPLIES   applies between two lines on standard output
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) >= 5 && arguments[0] == "node":
		return serve(arguments[1], arguments[2], arguments[3], arguments[4:])
	case len(arguments) == 3 && arguments[0] == "measure":
		rounds, err := strconv.Atoi(arguments[2])
		if err != nil {
			return err
		}
		return measure(arguments[1], rounds)
	case len(arguments) == 5 && arguments[0] == "count":
		clients, err := strconv.Atoi(arguments[3])
		applies, err2 := strconv.Atoi(arguments[4])
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		return count(arguments[1], arguments[2], clients, applies)
	}
	return errors.New("usage: raft node|measure|count ..., see main.go")
}

// serve runs a node until it is killed.
func serve(mode, directory, address string, members []string) error {
	n, err := startNode(members[0], directory, mode)
	if err != nil {
		return err
	}
	if err = n.join(members); err != nil {
		return err
	}
	http.HandleFunc("POST /apply", func(answer http.ResponseWriter, request *http.Request) {
		row, err := io.ReadAll(request.Body)
		if err == nil {
			err = n.apply(string(row))
		}
		if err != nil {
			http.Error(answer, err.Error(), http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("GET /status", func(answer http.ResponseWriter, _ *http.Request) {
		status := map[string]any{
			"state": n.State().String(), "term": n.CurrentTerm(), "applied": n.AppliedIndex(), "last": n.LastIndex()}
		json.NewEncoder(answer).Encode(status)
	})
	http.HandleFunc("GET /rows", func(answer http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(answer).Encode(n.rows.copied())
	})
	return http.ListenAndServe(address, nil)
}
