package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if os.Getpid() == 1 {
		runGuest()
	}
	run := flag.String("run", "", "")
	pk := flag.String("packages", strings.Join(testedPackages, " "), "")
	flag.Parse()
	checkout, _ := os.Getwd()
	dir := filepath.Join(checkout, "testdata/out/kernels")
	ks, err := selectKernels(flag.Args())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	pkgs := strings.Fields(*pk)
	var paths []string
	for _, p := range pkgs {
		paths = append(paths, "./"+p)
	}
	for _, k := range ks {
		image, err := fetchKernel(dir, k)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		began := time.Now()
		initramfs, err := makeImage(dir, checkout, k.arch, paths, testPlan(pkgs, *run))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("image", time.Since(began))
		began = time.Now()
		log, _ := os.Create(filepath.Join(dir, k.id+".log"))
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Minute)
		err = boot(ctx, k, image, initramfs, log, func(e event) {
			progress(k, began, e)
			if e.Output != "" {
				fmt.Print(e.Output)
			}
			if e.Kernel != "" {
				fmt.Println("KERNEL", e.Kernel)
			}
		})
		cancel()
		fmt.Println(k.id, time.Since(began), err)
	}
}
