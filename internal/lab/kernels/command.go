package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// filesDir is where the guest has the directory of the flag -files.
const filesDir = "/files"

// runCommand runs a command of the shell in the guest, in the checkout, and prints what it prints. The guest has one
// CPU, whose clocks count instructions, so that times are those of the program however busy the host is.
func (o *options) runCommand(interrupted context.Context, k kernel) error {
	fetched, err := o.fetch(k)
	if err != nil {
		return err
	}
	initramfs, err := o.makeImage(k, fetched.userland, nil, plan{Steps: []step{{
		Name: "command", Dir: sourceDir, Args: []string{"/bin/sh", "-c", o.command}, Timeout: bootTimeout,
		Env: []string{"PATH=/usr/sbin:/usr/bin", "HOME=/root"},
	}}})
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(o.dir, k.id+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeoutCause(interrupted, bootTimeout, fmt.Errorf("%v are over", bootTimeout))
	defer cancel()
	began := time.Now()
	var failed error
	counting := []string{"-accel", "tcg,thread=single", "-smp", "1", "-icount", "shift=2,sleep=off"}
	err = boot(ctx, fetched.qemu, k, counting, fetched.image, initramfs, log, func(e event) {
		progress(k, began, e)
		fmt.Print(e.Output)
		if e.Ended != nil && e.Ended.Error != "" {
			failed = errors.New(e.Ended.Error)
		}
	})
	return errors.Join(err, failed)
}
