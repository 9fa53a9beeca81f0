package live

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"correlator/internal/names/naming"
)

// The namer lives as long as stacks are wanted, and some minutes more; its goroutines end with it.
func TestNamesAreReadWhileWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLive(t, Config{})
		for range 3 {
			l.names.want()
			time.Sleep(namesUnused - time.Second)
			if synctest.Wait(); l.names.namer.Load() == nil {
				t.Fatal("no names are read")
			}
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); l.names.namer.Load() != nil {
			t.Error("the namer is still open")
		}
		l.names.want()
		if l.names.namer.Load() == nil {
			t.Error("it is not opened again")
		}
		shutdown(t, l)
		if l.names.want(); l.names.namer.Load() != nil {
			t.Error("opened after the shutdown")
		}
	})
}

func TestNamesAreTriedAgain(t *testing.T) {
	l := openLive(t, Config{})
	open, tries := l.names.open, 0
	l.names.open = func() (*naming.Namer, error) {
		if tries++; tries < 3 {
			return nil, errors.New("no file descriptors")
		}
		return open()
	}
	now := time.Now()
	for i, want := range []int{1, 1, 2, 2, 3, 3} {
		l.names.wantAt(now.Add(time.Duration(i/2) * namesRetry))
		if tries != want {
			t.Errorf("call %d: %d tries", i, tries)
		}
	}
	if l.names.namer.Load() == nil {
		t.Error("not opened")
	}
}
