package bloomsday

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A Watched follows a file that is replaced, as `bloomsday follow` does it: by a rename. Any number of goroutines may
// use it.
type Watched struct {
	path    string
	filter  atomic.Pointer[Filter]
	failure atomic.Pointer[error]
	// One poll at a time.
	polling sync.Mutex
	seen    os.FileInfo
	stop    chan struct{}
	stopped sync.Once
}

// Watch opens a blob file, and checks every interval whether there is another one. Lookups never wait for that.
//
// A file that is absent, damaged or not complete changes nothing: the old filter goes on answering, LastError says
// why, and the next poll tries again. While a filter is swapped there are two in memory.
func Watch(path string, interval time.Duration) (*Watched, error) {
	if interval <= 0 {
		return nil, fmt.Errorf("the interval %v is not positive: give one such as 30 * time.Second", interval)
	}
	w := &Watched{path: path, stop: make(chan struct{})}
	if _, err := w.Reload(); err != nil {
		return nil, err
	}
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-ticker.C:
				_, _ = w.Reload()
			}
		}
	}()
	return w, nil
}

// Filter returns the filter that answers now. Take it once for IDs that must be looked up in the same day.
func (w *Watched) Filter() *Filter { return w.filter.Load() }

// Reload polls at once, and returns whether there was another file.
func (w *Watched) Reload() (bool, error) {
	w.polling.Lock()
	defer w.polling.Unlock()
	swapped, err := w.poll()
	if err != nil {
		w.failure.Store(&err)
	} else {
		w.failure.Store(nil)
	}
	return swapped, err
}

func (w *Watched) poll() (bool, error) {
	before, err := os.Stat(w.path)
	if err != nil {
		return false, err
	}
	if w.seen != nil && same(w.seen, before) {
		return false, nil
	}
	filter, err := Open(w.path)
	if err != nil {
		return false, err
	}
	after, err := os.Stat(w.path)
	if err != nil {
		return false, err
	}
	w.filter.Store(filter)
	// Replaced while it was read: the next poll reads it again.
	if same(before, after) {
		w.seen = after
	}
	return true, nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// LastError returns why the last poll failed, or nil if it did not.
func (w *Watched) LastError() error {
	if failure := w.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// Close ends the polls. The filter goes on answering.
func (w *Watched) Close() { w.stopped.Do(func() { close(w.stop) }) }
