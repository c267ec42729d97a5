// Looks up IDs in a blob file through the C library:
//
//	go build first.go
//	./first rt.bloom 0f8fad5bd9cb469fa16570867728950e
//
// Without a C compiler, and with swaps of files, there is the package in go/: it is a reader in Go alone. This way has
// the library's own kernels and its server.
package main

/*
#cgo pkg-config: bloomsday
#include <bloomsday.h>
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// Filter is an open blob. Any number of goroutines may look IDs up until it is closed.
type Filter struct{ filter *C.bloomsday_filter_t }

// Open checks all of a blob file.
func Open(path string) (Filter, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var filter Filter
	err := call(func() C.int { return C.bloomsday_open(name, &filter.filter) })
	return filter, err
}

// ContainsBatch looks up many IDs in one call: a call from Go into C costs more than a lookup.
func (f Filter) ContainsBatch(ids []string) ([]bool, error) {
	var bytes []byte
	offsets := []C.int64_t{0}
	for _, id := range ids {
		bytes = append(bytes, id...)
		offsets = append(offsets, C.int64_t(len(bytes)))
	}
	// C gets no pointer into an empty slice.
	size := len(bytes)
	bytes = append(bytes, 0)
	answers := make([]C.uint8_t, len(ids)+1)
	err := call(func() C.int {
		return C.bloomsday_contains_batch64(f.filter, (*C.uint8_t)(&bytes[0]), C.size_t(size),
			&offsets[0], C.size_t(len(ids)), &answers[0])
	})
	contains := make([]bool, len(ids))
	for i := range contains {
		contains[i] = answers[i] == 1
	}
	return contains, err
}

// Close frees the filter; nobody may use it afterwards.
func (f Filter) Close() { C.bloomsday_close(f.filter) }

// call runs a function of the library and reads its error, which is kept by thread.
func call(function func() C.int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if function() == C.BLOOMSDAY_OK {
		return nil
	}
	return errors.New(C.GoString(C.bloomsday_last_error()))
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintf(os.Stderr, "usage: %s BLOB [ID...]\n", os.Args[0])
		os.Exit(C.BLOOMSDAY_USAGE)
	}
	filter, err := Open(os.Args[1])
	if err == nil {
		defer filter.Close()
		var contains []bool
		contains, err = filter.ContainsBatch(os.Args[2:])
		for i, id := range os.Args[2:] {
			fmt.Println(contains[i], id)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
