import sys


def inner(n):  # inner
    total = 0  # inner
    for i in range(n):  # inner
        total += i * i  # inner
    return total  # inner


class Work:
    def middle(self, n):
        return inner(n)  # middle


def outer():
    while True:
        Work().middle(100000)  # outer


print("ready")
sys.stdout.flush()
outer()  # main
