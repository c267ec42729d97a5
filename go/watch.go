package bloomsday

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// How long an unsound file is left alone that has not changed: what was read badly may be good on the disk.
const unsoundPause = time.Hour

// A Watched follows a file that is replaced, as `bloomsday follow` does it: by a rename. Any number of goroutines may
// use it.
type Watched struct {
	path string
	// The name of the filter, or none if any will do.
	expected string
	filter   atomic.Pointer[Filter]
	failure  atomic.Pointer[error]
	// One poll at a time.
	polling sync.Mutex
	// The file that was read last; what was wrong with it, and when it is read once more, if it was unsound.
	seen    os.FileInfo
	unsound error
	again   time.Time
	stop    chan struct{}
	stopped sync.Once
}

// Watch opens a blob file, and checks every interval whether there is another one. Lookups never wait for that. A file
// of any filter will do: WatchFilter expects one.
//
// A file that is absent, damaged or not complete changes nothing: the old filter goes on answering, and LastError says
// why. An absent file is tried again at each check; an unsound one when it has changed, and once an hour. While a filter
// is swapped there are two in memory.
//
// The error is that of Open, or says that the interval is not positive.
func Watch(path string, interval time.Duration) (*Watched, error) {
	return watch(&Watched{path: path}, interval)
}

// WatchFilter is Watch for the filter of this name: a file of another filter is an *UnsoundError.
func WatchFilter(path, name string, interval time.Duration) (*Watched, error) {
	if !filterName.MatchString(name) {
		return nil, fmt.Errorf("%q is not the name of a filter", name)
	}
	return watch(&Watched{path: path, expected: name}, interval)
}

func watch(w *Watched, interval time.Duration) (*Watched, error) {
	if interval <= 0 {
		return nil, fmt.Errorf("the interval %v is not positive: give one such as 30 * time.Second", interval)
	}
	w.stop = make(chan struct{})
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
				_, _ = w.check(false)
			}
		}
	}()
	return w, nil
}

// Filter returns the filter that answers now. Take it once for IDs that must be looked up in the same day.
func (w *Watched) Filter() *Filter { return w.filter.Load() }

// ContainsStrings looks up many IDs in the filter that answers now: see Filter.ContainsStrings.
func (w *Watched) ContainsStrings(ids []string, answers []bool) error {
	return w.Filter().ContainsStrings(ids, answers)
}

// Reload checks at once, and returns whether there was another file. It also reads a file again that was unsound.
func (w *Watched) Reload() (bool, error) { return w.check(true) }

func (w *Watched) check(rereadUnsound bool) (bool, error) {
	w.polling.Lock()
	defer w.polling.Unlock()
	swapped, err := w.poll(rereadUnsound)
	if err != nil {
		w.failure.Store(&err)
	} else {
		w.failure.Store(nil)
	}
	return swapped, err
}

func (w *Watched) poll(rereadUnsound bool) (bool, error) {
	// Before the file is opened: the next poll sees that what replaces it after this is another one.
	now, err := os.Stat(w.path)
	if err != nil {
		return false, err
	}
	isDue := w.unsound != nil && (rereadUnsound || time.Now().After(w.again))
	if w.seen != nil && same(w.seen, now) && !isDue {
		return false, w.unsound
	}
	filter, err := w.open()
	var unsound *UnsoundError
	if err != nil && !errors.As(err, &unsound) {
		return false, err
	}
	w.seen, w.unsound, w.again = now, err, time.Now().Add(unsoundPause)
	if err != nil {
		return false, err
	}
	w.filter.Store(filter)
	return true, nil
}

func (w *Watched) open() (*Filter, error) {
	filter, err := Open(w.path)
	if err != nil || w.expected == "" || filter.header.Filter == w.expected {
		return filter, err
	}
	why := fmt.Sprintf("expected the filter %q, but it is %q", w.expected, filter.header.Filter)
	return nil, &UnsoundError{Path: w.path, Why: why}
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

// Close ends the checks. The filter goes on answering. The error is always nil: a Watched is an io.Closer.
func (w *Watched) Close() error {
	w.stopped.Do(func() { close(w.stop) })
	return nil
}
