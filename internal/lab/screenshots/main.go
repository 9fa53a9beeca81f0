// Command screenshots takes the pictures in docs/images of pages that are shown (make screenshots), in headless
// Chromium. Beside the pictures it writes what they and the sources of the pages are, for its test.
//
//	screenshots DIR live http://127.0.0.1:11233/ SERVICE   live-view.png, with a transaction of a service chosen
//	screenshots DIR flame FILE.html                        flame-graph.png
//	screenshots DIR sum                                    SOURCES
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"
)

const patience = time.Minute

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: screenshots DIR live URL SERVICE | flame FILE | sum")
	}
	dir, arguments := os.Args[1], os.Args[3:]
	var err error
	switch what := os.Args[2]; {
	case what == "live" && len(arguments) == 2:
		err = take(filepath.Join(dir, "live-view.png"), arguments[0], 1440, 900, fmt.Sprintf(choose, arguments[1]))
	case what == "flame" && len(arguments) == 1:
		var path string
		if path, err = filepath.Abs(arguments[0]); err == nil {
			err = take(filepath.Join(dir, "flame-graph.png"), "file://"+path, 1100, 860, "view.flame.boxes.length > 0")
		}
	case what == "sum" && len(arguments) == 0:
		var sums string
		if sums, err = sum(".", dir); err == nil {
			err = os.WriteFile(filepath.Join(dir, sumsName), []byte(sums), 0o644)
		}
	default:
		err = errors.New("what to take is not known")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// choose is true once a transaction of a service is chosen that has been watched for a while; it chooses another one
// when it has ended before that.
const choose = `(service => {
	const {flame} = view, o = view.objects("CorrelatorTransaction").get(view.transaction);
	const waits = view.objects("CorrelatorTransactionWait").size;
	if (o && waits > 4 && flame.root.time > 0.7 && view.timeline.visible) return true;
	const working = o && view.bus.now() - o.lastRun < 1;
	view.watched ??= view.second;
	if (working || view.second - view.watched < 40) return false; // graphs have something to show
	const all = [...view.objects("CorrelatorTransaction")].filter(([, o]) => o.service === service);
	all.sort(([, a], [, b]) => b.since - a.since);
	if (all.length) view.chooseTransaction(all[0][0]);
	return false;
})(%q)`

func take(file, url string, width, height int64, ready string) error {
	// Root cannot have Chromium's sandbox; what is shown is ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath("chromium"),
		chromedp.WindowSize(int(width), int(height)), chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	ctx, end := chromedp.NewExecAllocator(ctx, options...)
	defer end()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	for _, action := range []chromedp.Action[chromedp.Void]{chromedp.EmulateViewport(width, height),
		chromedp.Navigate(url)} {
		if _, err := chromedp.Run(ctx, action); err != nil {
			return err
		}
	}
	for is := false; !is; time.Sleep(time.Second / 4) {
		var err error
		if is, err = chromedp.Run(ctx, chromedp.Evaluate[bool](ready)); err != nil {
			return fmt.Errorf("waiting for %s: %w", file, err)
		}
	}
	image, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(file, image, 0o644)
}
