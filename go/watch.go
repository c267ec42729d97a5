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
	// One look at a time.
	looking sync.Mutex
	seen    os.FileInfo
	stop    chan struct{}
	stopped sync.Once
}

// Watch opens a blob file, and looks every interval whether there is another one. Lookups never wait for that.
//
// A file that is absent, damaged or not complete changes nothing: the old filter goes on answering, LastError says
// why, and the next look tries again. While a filter is swapped there are two in memory.
func Watch(path string, interval time.Duration) (*Watched, error) {
	if interval <= 0 {
		return nil, fmt.Errorf("an interval of %v cannot be: give one such as 30 * time.Second", interval)
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

// Reload looks at once, and returns whether there was another file.
func (w *Watched) Reload() (bool, error) {
	w.looking.Lock()
	defer w.looking.Unlock()
	swapped, err := w.look()
	if err != nil {
		w.failure.Store(&err)
	} else {
		w.failure.Store(nil)
	}
	return swapped, err
}

func (w *Watched) look() (bool, error) {
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
	// Replaced while it was read: the next look reads it again.
	if same(before, after) {
		w.seen = after
	}
	return true, nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// LastError returns why the last look failed, or nil if it did not.
func (w *Watched) LastError() error {
	if failure := w.failure.Load(); failure != nil {
		return *failure
	}
	return nil
}

// Close ends the looks. The filter goes on answering.
func (w *Watched) Close() { w.stopped.Do(func() { close(w.stop) }) }
