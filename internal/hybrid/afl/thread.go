package afl

import "runtime"

// onOwnThread runs f on a thread that lives exactly as long as f runs. The kernel ties a parent-death signal to the
// thread that started the child, and the Go runtime may end a thread at any time.
func onOwnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- f()
	}()
	return <-done
}
