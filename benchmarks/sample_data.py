"""Writes everything under ``sample_data/``: ``python benchmarks/sample_data.py [--seed N] [--out FOLDER]``.

One seed gives the same bytes on every machine and Python version. Two sets come out: ``support/``, a pool of
labelled customer messages from eight sources of known quality, and ``facts/``, questions on invented facts with ten
documents each. The truth about every row is written beside the rows, where the tool under test does not look.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Row = dict[str, Any]

SAMPLE_DATA = Path(__file__).resolve().parents[1] / "sample_data"

SEED = 20
NEAR = 0.8  # Jaccard of character 5-grams from which two inputs count as near duplicates
APART = 0.7  # what every input keeps to every other, near-duplicate source aside: well below NEAR
FAMILIAR = 0.6  # share of validation and test messages whose frame the pool knows too, with values it does not
TALKATIVE = 0.75  # share of messages that put their matter in two sentences
SLIP = 0.8  # share of wrong labels that are sure to be the neighbouring intent's; the others are drawn evenly
ALIKE = 0.84  # what an edited copy keeps to its original: well above NEAR


class Dice:
    """Draws built on ``Random.random`` alone, the one method whose sequence Python promises never to change."""

    def __init__(self, *key: object) -> None:
        self._random = random.Random("/".join(map(str, key))).random

    def below(self, n: int) -> int:
        return int(self._random() * n)

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def chance(self, p: float) -> bool:
        return self._random() < p

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def weighted(self, weights: Mapping[T, float]) -> T:
        mark = self._random() * sum(weights.values())
        for item, weight in weights.items():
            mark -= weight
            if mark < 0:
                return item
        return next(reversed(list(weights)))

    def shuffled(self, items: Sequence[T]) -> list[T]:
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(len(items))]


def grams(text: str) -> frozenset[str]:
    """Character 5-grams of the lower-cased text with white space folded; a shorter text is its own gram."""
    folded = " ".join(text.lower().split())
    return frozenset(folded[i : i + 5] for i in range(max(len(folded) - 4, 1)))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    if min(len(a), len(b)) < APART * max(len(a), len(b)):  # cannot reach APART, which is all that callers ask
        return 0.0
    common = len(a & b)
    return common / (len(a) + len(b) - common)


# --------------------------------------------------------------------------------------------------------------
# Support: Sproutwick sells indoor planters, seed pods, and a pod subscription called the Pod Club.
# In a frame, [a|b] is a choice and {slot} a value. "held" frames and values are seen by validation and test alone.
# --------------------------------------------------------------------------------------------------------------

INTENTS: dict[str, str] = {
    "delivery_delay": "a parcel is late, stuck, or has not come at all",
    "delivery_address_change": "an order on its way should go to another address",
    "damaged_on_arrival": "the parcel came, and what was in it is broken",
    "wrong_item_received": "the parcel holds another thing than was ordered, or lacks one",
    "refund_request": "the customer asks for money back, nothing has been agreed yet",
    "refund_status": "a refund has been agreed, and the customer asks where it is",
    "payment_declined": "a payment does not go through at the checkout",
    "charged_twice": "money was taken twice, or more of it than was due",
    "invoice_request": "the customer needs an invoice, a receipt, or a correction to one",
    "discount_code_problem": "a voucher or discount is refused or was not applied",
    "pause_subscription": "the Pod Club should stop for a while, and go on later",
    "cancel_subscription": "the Pod Club should end for good",
    "device_offline": "a planter has no connection to the Wi-Fi or the app",
    "device_hardware_fault": "a lamp, pump, sensor or other part of a planter does not work",
    "plant_not_growing": "seeds do not sprout, or plants do badly",
    "login_problem": "the customer cannot get into the account",
}

FRAMES: dict[str, dict[str, list[str]]] = {
    "delivery_delay": {
        "pool": [
            "My {item} was [due|supposed to be here] {when} and [still has not come|there is no sign of it]",
            "[Where is|Any news on] my parcel? I ordered {item} {ago}",
            "The tracking for {order} [has not moved|says in transit|shows the same depot] since {when}",
            "It has been {long} and I am still waiting for {item}",
            "The courier [missed|skipped] us [again|a second time], when will {item} finally arrive",
            "You promised next day delivery, {long} later [nothing has turned up|my doorstep is empty]",
            "How much longer [until|before] {order} gets here",
            "{order} says delivered but [nobody here has seen it|I never got it]",
            "My package seems [stuck|lost] at the {city} depot",
            "Can you check why {item} [is taking so long|is so late]",
            "Expected {item} {when}, [not delivered|not here]",
            "The delivery date [keeps slipping|was moved for the third time], what is going on",
            "I have been [stalking|watching] the letterbox for {long} now, is {item} even on its way",
            "The carrier's page has said 'label created' for {long}",
            "[What is holding up|Why the hold-up with] {order}",
        ],
        "held": [
            "Nothing came {when} although the mail said it would",
            "Could it be that the parcel of {order} [went missing|got lost] in the post, it is {long} late",
            "When can I [expect|count on] the delivery of the things I bought {ago}",
            "Still no {item}, and the estimated day was {when}",
            "Dispatch confirmed {ago}, yet the box never reached {city}",
            "The neighbours got theirs, ours is overdue by {long}",
        ],
    },
    "delivery_address_change": {
        "pool": [
            "I [moved|am moving] to {city}, please send {order} to the new address",
            "I [typed|entered] the wrong [house number|street|postcode] for {order}",
            "Can {item} be delivered to my [office|workplace|parents] instead",
            "Please change the shipping address on {order}",
            "The order is going to my old [flat|place] in {city}, can you [redirect|reroute] it",
            "How do I [edit|update] where {item} gets sent",
            "I forgot to [change|update] the delivery address before I [paid|checked out]",
            "Could the courier leave {order} at a different address",
            "[Wrong|Outdated] address on {order}, it should go to {city}",
            "Is it too late to have {item} shipped somewhere else",
            "My postcode has a typo in {order}, please correct it before it ships",
            "We will be at our holiday house in {city} next week, send the parcel there",
            "I no longer live in {city}, and {order} is [headed|on its way] there",
            "I picked the wrong saved address when I bought {item}",
            "Can I collect {item} at a pick-up point in {city} instead of having it brought home",
        ],
        "held": [
            "Would you mind delivering {item} to my sister's address rather than mine",
            "The flat number is missing from the delivery address of {order}",
            "Before it leaves the warehouse: the destination of {order} has to be {city}",
            "New home as of {when}, so where do I tell you about it for the parcel under way",
            "Autofill put my previous street on {order}",
            "Ship to my work, not to my house, for {order}",
        ],
    },
    "damaged_on_arrival": {
        "pool": [
            "My {item} arrived [broken|smashed|cracked]",
            "The box was [crushed|soaked|torn open] and {item} [is|inside is] ruined",
            "I unpacked {item} today and there is a [crack|big dent] in it",
            "{order} came with a broken [lid|tray|water tank]",
            "The parcel got wet in transit, the [pods|seeds] are all mouldy",
            "Half of the [pods|glass parts] were in pieces when I opened the package",
            "Delivered {when}, [shattered|damaged] on delivery, I have photos",
            "The courier must have dropped it, {item} is [bent|split down the side]",
            "The [lamp arm|tank] was snapped off when I took it out of the box",
            "Received {item} in [terrible|bad] condition, scratched and dented",
            "There is soil [all over|everywhere] in the box because a bag [burst|ripped] on the way",
            "Poor packaging, {item} did not survive the trip",
            "Opened the carton and found [shards|splinters] instead of {item}",
            "Straight out of the wrapping the tank leaks because of a hairline crack",
            "A bottle of plant food had leaked over the whole shipment",
        ],
        "held": [
            "Whoever carried {order} must have used it as a football, all the contents are broken",
            "{item} reached us {when} with a hole in the side",
            "The bubble wrap was missing and now {item} has a chipped corner",
            "Unboxing was sad, everything was squashed and cracked",
            "What was delivered {when} is in bits, [smashed to pieces|totally broken]",
            "The packaging looked fine but {item} inside was fractured",
        ],
    },
    "wrong_item_received": {
        "pool": [
            "I ordered {item} but [got|received|was sent] {other}",
            "You sent me the wrong [colour|size|model] of {item}",
            "There is {other} in the box, that is not what I [bought|asked for]",
            "{order} is [incomplete|missing something], there is no {item} in it",
            "One of the things I paid for [is missing from|was not in] the parcel",
            "The packing slip says {item} but the box contains {other}",
            "I think I got somebody else's order, it has {other} in it",
            "Only [two of the three|half of the] packs were in the delivery",
            "[Mix-up|Mistake] with {order}: {other} instead of {item}",
            "Where is the power adapter? It was not [included|in the box] with {item}",
            "Received the black one, I had chosen [white|green]",
            "Why did I get {other}, I never ordered that",
            "The name on the slip is a stranger's, and so are the contents, {other}",
            "The set should have four trays, I count three",
            "Please swap {other} for {item}, which is what I had ordered",
        ],
        "held": [
            "What I unpacked {when} is {other}, my basket had {item}",
            "Somebody in the warehouse packed {other} by mistake, I had ordered {item}",
            "{item} was on the packing list for {order} but missing from the box",
            "This is not the variety I picked, I wanted {plant}",
            "Short delivery: the screws and the manual are not there",
            "The product that came is a different one than in my order confirmation",
        ],
    },
    "refund_request": {
        "pool": [
            "I want my money back for {item}",
            "[Please refund|I would like a refund for] {order}",
            "Can I return {item} and get [a refund|my money back]",
            "I am not [happy|satisfied] with {item}, how do I get refunded",
            "I changed my mind about {item}, please [return the payment|give me back the {amount}]",
            "How do I [send back|return] {item} for a full refund",
            "This is not worth {amount}, I want to be reimbursed",
            "{item} did not work for us, I am asking you to refund the {amount}",
            "What is your [return|refund] policy, I want to send {item} back",
            "I would rather have the money than a replacement for {order}",
            "Take {item} back and pay me the {amount}",
            "It is within the thirty days, so I [claim|demand] a refund on {order}",
            "Kindly reverse the purchase of {item}",
            "The trial period is not over, so I am giving {item} back against the price I paid",
            "Not what the advert promised, reimburse me",
        ],
        "held": [
            "{item} is going back to you, what do I need to do to see my {amount} again",
            "I regret buying {item}, is there a way to be paid back",
            "No exchange please, just the {amount} on my card again",
            "Am I entitled to get the cost of {order} back",
            "I would like to undo {order} and recover what I paid",
            "Start a return for {item}, I want a refund and no exchange",
        ],
    },
    "refund_status": {
        "pool": [
            "Where is my refund for {order}",
            "You [approved|confirmed] my refund {ago} but I have not received it",
            "When will the {amount} you owe me be [back on my card|in my account]",
            "I sent {item} back {ago} and [still no refund|the money is not there yet]",
            "How long does a refund take, it has been {long}",
            "The refund of {amount} [has not shown up|is still missing] on my statement",
            "Can you check the [status|progress] of my refund",
            "Any update on the reimbursement you promised {ago}",
            "My return arrived at your warehouse {when}, when do I get paid",
            "The mail said refund processed, my bank [sees nothing|has no trace of it]",
            "Waiting for my money back since {when}",
            "I only got part of the refund for {order}, where is the rest",
            "Has the {amount} for the returned {item} left your side yet",
            "Which day will the credit for {order} reach my bank",
            "Is the reimbursement for {order} delayed",
        ],
        "held": [
            "Your colleague granted me my money back {ago}, nothing has landed so far",
            "{long} after the return was accepted my balance is unchanged",
            "Tracking shows you received {item} back {when}, so what about the repayment",
            "I am chasing the refund of {amount} that was promised to me",
            "Was my refund sent to the old card by any chance, I see none of it",
            "The five to seven days for getting my {amount} back are long over",
        ],
    },
    "payment_declined": {
        "pool": [
            "My [card|credit card] [was declined|got rejected] when I tried to buy {item}",
            "The checkout says payment failed, [what now|why]",
            "I cannot pay for {item}, the page [gives an error|says transaction refused]",
            "{pay} [does not work|is not accepted] on your site",
            "Payment [not accepted|refused] although there is enough money on my account",
            "I tried three [cards|times] and none of the payments went through",
            "The bank code is sent to me but then the payment [fails|times out]",
            "Why is my {pay} being refused at the checkout",
            "Order cannot be completed, [payment error|card error] again and again",
            "My new card [cannot be added|is rejected] in the payment settings",
            "The Pod Club payment bounced because my card expired, how do I pay now",
            "It keeps telling me to use another payment method",
            "At the very last step the shop tells me the transaction was unsuccessful",
            "My bank says they never blocked anything, so why do you turn my card down",
            "After the security check the screen returns to the basket and nothing is paid",
        ],
        "held": [
            "I am stuck at paying, {pay} bounces every time",
            "The purchase of {item} cannot be finalised, it will not take my {pay}",
            "Authorisation denied when paying for {order} by card",
            "A red message about my {pay} appears as soon as I press buy",
            "Do you not take {pay} any more, it worked in spring",
            "Could not charge your card, says the mail about my next box",
        ],
    },
    "charged_twice": {
        "pool": [
            "I was [charged|billed] twice for {order}",
            "There are two payments of {amount} on my [statement|account] for one order",
            "You took {amount} from me [two times|twice]",
            "My card shows a [double|duplicate] charge",
            "Why did you [charge|debit] {amount}, it should have been less",
            "The total on my card is higher than the price of {item}",
            "I paid once with {pay} and once more by mistake of your site",
            "The Pod Club was billed two times this month",
            "[Unknown|Unexpected] charge of {amount} from Sproutwick",
            "The same amount was booked again {when}",
            "I [clicked|pressed] pay once but got two debits",
            "You overcharged me for {item}",
            "My bank lists the {amount} for {item} on two different days",
            "The sum taken for {order} does not match the confirmation",
            "Why is there another deduction from Sproutwick this week",
        ],
        "held": [
            "One order, two withdrawals from my bank account, please look into it",
            "A second {amount} left my account {when} without any new order",
            "Looks like your system collected the money for {order} doubly",
            "Paid by {pay}, then also debited, that is once too many",
            "I see the monthly club fee repeated on the same date",
            "More was taken from my card than the {amount} we agreed on",
        ],
    },
    "invoice_request": {
        "pool": [
            "[Please send me|I need] an invoice for {order}",
            "Where can I [find|download] the receipt for {item}",
            "I need a VAT invoice [in the name of my company|with our tax number]",
            "My accountant is asking for the bill for {item}",
            "The invoice for {order} shows the wrong company name",
            "Could you [mail|email] me a copy of my receipt from {ago}",
            "No invoice was attached to the confirmation of {order}",
            "I have to [claim|expense] {item} at work and need a proper receipt",
            "How do I get [bills|invoices] for all my Pod Club payments",
            "Is there a PDF of the bill for {amount}",
            "Please add our VAT number to the invoice",
            "I lost the receipt for {item}, can I have it again",
            "For our bookkeeping we require the paperwork on {order}",
            "Can the bill be made out to the school instead of me",
            "Re-issue the statement for {order} with the correct company address please",
        ],
        "held": [
            "Tax season: can I get proof of purchase for everything since {when}",
            "The finance department wants a document that states the {amount} and the tax",
            "I bought {item} for the office and my boss wants to see a receipt",
            "Nothing to print in my account for {order}, I only need the bill",
            "My insurance asks for the original sales slip of {item}",
            "Do you send receipts by post too",
        ],
    },
    "discount_code_problem": {
        "pool": [
            "My discount code [does not work|is not accepted|says invalid]",
            "The voucher {code} was [rejected|refused] at the checkout",
            "I forgot to [enter|use] the code {code}, can you still apply it",
            "The [10|15|20] percent off did not come off the total",
            "It says the coupon has expired but [the mail says until Sunday|I got it yesterday]",
            "How do I redeem a [gift card|voucher] for {item}",
            "The code {code} [cannot be used|fails] on {item}, why is that",
            "The newsletter promised a discount and [I never got the code|no code was in it]",
            "I was charged the full price although I had a voucher",
            "Promo code [error|not valid] on {item}",
            "My gift card shows a balance of zero",
            "The friend referral credit is not showing in my basket",
            "{code} is what your leaflet said, the basket will have none of it",
            "My {item} should have been cheaper with the birthday coupon",
            "A friend invited me, where is the {amount} off I was meant to get",
        ],
        "held": [
            "Where do I type in the promotion, I see no box for it",
            "The new customer discount vanished when I got to the last page",
            "Your site claims I already used {code}, I have not",
            "The student offer is not deducted from the sum",
            "Does {code} apply to sale goods, it throws an error",
            "Got a gift voucher from my aunt, the number on it is unknown to the shop",
        ],
    },
    "pause_subscription": {
        "pool": [
            "Can I pause my Pod Club [for a month|for two months|over the summer]",
            "Please [skip|hold] my next pod box",
            "I am away until {month}, put the subscription on hold",
            "I have too many pods, can you skip a [delivery|month]",
            "How do I [freeze|suspend] the Pod Club for a while",
            "I do not want to cancel, just [take a break|stop it for some weeks]",
            "Stop the pods until {month} please",
            "Is there a pause button for the subscription",
            "We are travelling, please [interrupt|halt] our boxes and start again in {month}",
            "Could the next box come a month later",
            "Put my plan on hold, I will be back in {month}",
            "How long can I pause the monthly pods",
            "No box for me before {month}, afterwards as usual",
            "I will be in hospital for some weeks, can the pods wait that long",
            "Postpone my plan, I would like to resume in {month}",
        ],
        "held": [
            "The cupboard is full of seeds, I could do with a break from the Pod Club for some weeks",
            "Leave out the next shipment only, then carry on",
            "Can my membership sleep until {month}",
            "Temporarily no more pods please, we will resume in {month}",
            "Send the boxes every two months rather than monthly for now",
            "I would like to skip the coming round of the Pod Club",
        ],
    },
    "cancel_subscription": {
        "pool": [
            "I want to cancel my [Pod Club|subscription]",
            "Please end my subscription [immediately|at the end of the month]",
            "How do I [unsubscribe from|quit|get out of] the Pod Club",
            "I do not need the pods any more, stop the plan [for good|completely]",
            "Cancel everything and [close|delete] my membership",
            "The cancel button in the app [does nothing|does not work], I want out",
            "I cancelled the Pod Club {ago} and you still send boxes",
            "Please do not renew my [plan|yearly subscription]",
            "The Pod Club got too expensive, I am leaving",
            "Terminate my contract as of {month}",
            "I signed up for a trial only, cancel it before I get charged",
            "What is the notice period to cancel the pods",
            "I am done with the monthly boxes, take me off the list",
            "No further shipments ever, thanks for the years",
            "How can I leave the club without calling you",
        ],
        "held": [
            "This is my notice for the Pod Club",
            "My mother passed away, please discontinue her pods",
            "I gave the planter away, so please end my membership",
            "Switch off the automatic renewal, I will not stay after {month}",
            "Confirm in writing that my subscription is cancelled",
            "I never wanted a recurring plan, remove me from it",
        ],
    },
    "device_offline": {
        "pool": [
            "My {device} [will not|does not] connect to the Wi-Fi",
            "The app says my {device} is offline",
            "Since I changed my router the {device} [cannot be found|is not connected]",
            "Pairing [fails|stops at 90 percent] when I add the {device}",
            "The {device} keeps [losing|dropping] the connection",
            "How do I [reconnect|set up] the {device} with a new Wi-Fi password",
            "The app cannot find my {device} over Bluetooth",
            "The blue light on the {device} keeps blinking and it never joins the network",
            "[No connection|Not reachable] in the app since the last update",
            "Does the {device} work with 5 GHz networks, it does not see mine",
            "My {device} shows as disconnected although the internet works",
            "The {device} disappeared from my app {when}",
            "After the power cut the {device} no longer talks to my phone",
            "Last seen {long} ago, it says on my phone about the {device}",
            "The little cloud symbol is crossed out and notifications stopped",
        ],
        "held": [
            "I got a new internet provider and now there is no link to the {device}",
            "Setup hangs on 'searching for planter'",
            "The {device} refuses our wireless network, the phone has no trouble with it",
            "I cannot steer the {device} remotely any more, it says unreachable",
            "Onboarding the {device} never gets past the QR code",
            "Signal is strong in the kitchen but the {device} stays grey in the list",
        ],
    },
    "device_hardware_fault": {
        "pool": [
            "The [grow light|lamp] of my {device} [does not turn on|stays dark|flickers]",
            "The water pump [makes a loud noise|has stopped|rattles] in my {device}",
            "My {device} does not switch on at all",
            "The water level sensor [is stuck|shows empty all the time] although the tank is full",
            "My {device} is leaking [water|from the bottom] after {long} of use",
            "The [power button|touch panel] on the {device} does not react",
            "Half of the LEDs on the {device} are dead",
            "The motor of the tower [does not turn|grinds]",
            "The power supply of the {device} gets [very hot|burning hot]",
            "Is a broken pump covered by the warranty, I bought the {device} {ago}",
            "My {device} [turns itself off|restarts] every few minutes",
            "The fan in the {device} is [buzzing|humming] so loudly we cannot sleep",
            "No light from the {device} for {long}, the plug is fine",
            "It smells burnt when the {device} is running",
            "It claims to need water when it is brim-full",
        ],
        "held": [
            "There is a puddle under the {device} every morning",
            "The {device} is dead, not even the standby dot glows",
            "Nothing circulates any more, I think the pump has given up",
            "The display on my {device} is garbled and buttons do nothing",
            "One strip of LED lights on the {device} went out {when}, do I get a spare part",
            "Grinding sounds come from inside the {device}",
        ],
    },
    "plant_not_growing": {
        "pool": [
            "My {plant} [is not growing|has stopped growing]",
            "The {plant} pods have not [sprouted|germinated] after {long}",
            "The leaves of my {plant} are turning [yellow|brown]",
            "There is [mould|white fuzz] on the {plant} pods",
            "My {plant} [died|withered] although I followed the guide",
            "How much plant food does {plant} need, it looks [weak|pale]",
            "My {plant} is getting long and thin and falls over",
            "There are little flies [around|in] my {plant}",
            "Nothing is coming up from the {plant} seeds",
            "The {plant} tastes [bitter|of nothing] and the leaves are tiny",
            "Is it normal that {plant} takes {long} to show anything",
            "The roots of my {plant} look brown and slimy",
            "What am I doing wrong, the {plant} just will not come up",
            "My {plant} looks sad and droops in the afternoon",
            "The seedlings shot up and then keeled over",
        ],
        "held": [
            "All I see after {long} is bare sponge, the {plant} never sprouted",
            "Spots on the foliage of my {plant}, is that a disease",
            "Should I trim {plant}, it has hardly got bigger in {long}",
            "Only one in six seeds came up",
            "The {plant} flowers but never bears any fruit",
            "Something is eating holes into my {plant}",
        ],
    },
    "login_problem": {
        "pool": [
            "I cannot [log in|sign in] to my account",
            "I forgot my password and the reset mail [never arrives|does not come]",
            "It says my [password|email] is wrong but [it is right|I am sure it is correct]",
            "My account is [locked|blocked] after too many tries",
            "The login code is [never sent|not accepted]",
            "I no longer have the [email address|phone] I registered with, how do I get into my account",
            "The app logs me out [every day|all the time]",
            "The link to reset my password [has expired|leads to an error]",
            "It says there is no account with my email",
            "How do I [change|reset] my password",
            "Signing in with [Google|Apple] does not work since {when}",
            "I am [stuck|caught] in a loop on the sign-in page",
            "I am shut out of my profile since {when}",
            "New phone, and now the app wants credentials I do not remember",
            "I need a fresh password, the button for it does nothing",
        ],
        "held": [
            "The six digit login code you text me is refused",
            "Which mail did I register with, none of mine lets me in",
            "Your site does not recognise me any more",
            "Somebody changed the access to my account, help me to get back in",
            "The authenticator is on a phone I lost, so I have no way in",
            "User unknown, says the start page, although I have been a customer for {long}",
        ],
    },
}

SLOTS: dict[str, dict[str, list[str]]] = {
    "pool": {
        "item": [
            "my planter", "the pod pack", "the new lamp", "the starter kit", "the seed tray", "the refill pack",
            "the set", "the herb pod box", "the Sill", "the Tower", "the spare pump", "the pod parcel",
        ],
        "other": [
            "a pack of mint pods", "a lamp cover", "the small tray", "tomato seeds", "a travel mug", "the old pump",
            "a bag of soil", "two chilli packs",
        ],
        "device": ["Sill", "Tower", "Nook", "planter", "Sill planter", "Tower planter"],
        "plant": ["basil", "mint", "coriander", "lettuce", "chilli", "parsley", "dill", "thyme", "cherry tomato"],
        "when": ["Monday", "last Friday", "the 3rd", "yesterday", "Tuesday morning", "the weekend", "last week"],
        "ago": ["two weeks ago", "ten days ago", "last month", "a week ago", "in May", "on the 12th"],
        "long": ["three weeks", "nine days", "over a week", "almost a month", "two weeks", "12 days"],
        "amount": ["39 euros", "£24.50", "€59", "84 euros", "$31", "€17.90", "120 euros"],
        "city": ["Leeds", "Ghent", "Porto", "Graz", "Lyon", "Aarhus", "Turin"],
        "month": ["September", "the new year", "April", "July", "October"],
        "pay": ["Visa card", "PayPal", "Mastercard", "bank transfer", "debit card"],
        "code": ["SPROUT10", "HELLO15", "GREENWEEK", "POD5"],
    },
    "held": {
        "item": [
            "the big planter", "the bag of pods", "my box", "the kit", "the wall bracket", "my purchase",
            "the Balcony", "the flower mix", "the lid",
        ],
        "other": ["a box of cress pods", "a glass lid", "lavender seeds", "a cleaning brush", "the tall legs"],
        "device": ["Balcony", "patio planter", "garden", "Balcony planter", "big planter"],
        "plant": ["rocket", "strawberry", "pak choi", "sage", "lavender", "spinach", "oregano"],
        "when": ["Thursday", "the 21st", "last night", "Saturday", "the day before yesterday"],
        "ago": ["three weeks ago", "a fortnight ago", "in early June", "on the 27th"],
        "long": ["five weeks", "eleven days", "half a month", "ages"],
        "amount": ["45 euros", "£62", "€12.40", "$77", "99 euros"],
        "city": ["Bristol", "Malmö", "Bologna", "Linz", "Utrecht"],
        "month": ["November", "mid-August", "February", "the spring"],
        "pay": ["Amex", "Apple Pay", "prepaid card", "Maestro card"],
        "code": ["LEAFY20", "WELCOME7", "SPRINGPOD"],
    },
}  # fmt: skip

# Sentences that carry no intent, or the shadow of another one: what makes a message hard to read at a glance.
STORIES: dict[str, list[str]] = {
    "pool": [
        "My daughter named our basil Gerald and we are all very fond of him.",
        "I have been a customer since the first Sill came out.",
        "Your last delivery was quick, by the way.",
        "We had friends over and they loved the salad from our Tower.",
        "The pods I bought in spring did really well.",
        "I got this as a birthday present from my colleagues.",
        "I do like the app and the little reminders.",
        "Last year you sorted out a refund for me in no time, so I am hopeful.",
        "I work nights, so I only get round to writing now.",
        "Reading through your help pages took my whole lunch break.",
        "The chat robot sent me round in circles.",
        "My husband usually takes care of our account.",
        "A neighbour recommended you to me.",
        "Apart from this I am pleased with the light and the look of it.",
        "We use two planters at our school and the children adore them.",
        "I paid by card as always.",
    ],
    "held": [
        "Our cat sleeps under the grow lamp and has never been happier.",
        "I grew up on a farm, so this is a bit of home in the city.",
        "The strawberry pods were a hit with the kids.",
        "I already called on Friday and was cut off after ten minutes.",
        "The invoice came right away, thanks for that.",
        "I am writing on behalf of my grandmother, who has no internet.",
        "My previous order was perfect, no complaints at all.",
        "I have had the Pod Club for a year and mostly enjoy it.",
        "Setting up the Wi-Fi was easier than I feared.",
        "We are in the middle of a move and everything is chaos.",
    ],
}
OPENERS: dict[str, dict[str, list[str]]] = {
    "pool": {
        "polite": ["Hello,", "Good morning,", "Dear Sproutwick team,", "Hi there,", "Excuse me,"],
        "angry": ["This is ridiculous.", "Seriously?", "I am fed up.", "Not again!", "What a mess."],
    },
    "held": {
        "polite": ["Good evening,", "Dear all,", "Hello Sproutwick,", "Greetings,"],
        "angry": ["Unbelievable.", "I have had it.", "Third time I write to you!", "Come on, people."],
    },
}
CLOSERS: dict[str, dict[str, list[str]]] = {
    "pool": {
        "polite": ["Thank you very much!", "Many thanks in advance.", "Kind regards, {name}", "Thanks for your help."],
        "angry": ["Sort it out NOW.", "I expect an answer today.", "Never again!!", "This is a joke."],
        "detail": [
            "The number is {order}.",
            "I use the app on an older phone.",
            "You can call me after five.",
            "It is about the account of {name}.",
            "I can send pictures.",
        ],
    },
    "held": {
        "polite": ["I appreciate your time.", "Best wishes, {name}", "Thanks ever so much.", "Looking forward to it."],
        "angry": ["Do your job!", "I will tell everyone I know.", "Fix this.", "Utterly useless."],
        "detail": [
            "My reference is {order}.",
            "Mornings suit me best for a call.",
            "I wrote about this before.",
            "The customer is {name}.",
        ],
    },
}
NAMES: dict[str, list[str]] = {
    "pool": ["Marta", "J. Okoye", "Pieter V.", "Lin", "Anouk", "Mr Halloran", "Sanne", "Tomasz"],
    "held": ["Ines", "R. Castellan", "Yusuf", "Mrs Dahl", "Bram"],
}

# Questions of other people to other people: recipes, jobs, other firms' goods.
OFF_TOPIC: list[str] = [
    "What can I cook with [leftover rice|two aubergines|a tin of chickpeas] and [a lemon|some yoghurt]",
    "Are you hiring [drivers|students|designers] for the [summer|warehouse|autumn] season",
    "My [scooter|e-bike|lawn mower] battery [dies|runs flat] after [ten|twenty] minutes, any ideas",
    "Which [film|series|book] should I [watch|start] on a [rainy Sunday|long train ride]",
    "The [washing machine|dishwasher|coffee machine] shows error [E4|F12|H20], what does it mean",
    "Does anyone have a [plum cake|sourdough|dumpling] recipe [without eggs|for beginners]",
    "Will it [rain|snow|be sunny] in [Oslo|Naples|Krakow] [at the weekend|on Friday]",
    "Who won the [match|race|final] [last night|on Sunday], I [missed it|fell asleep]",
    "I would like to [interview|invite] your founder for our [podcast|school paper|conference]",
    "How do I [prune|repot|move] an old [rose|fig tree|hedge] in [the garden|my front yard]",
    "Selling a [used sofa|child's bike|set of tyres] in [good|fair] condition, [pick up only|price negotiable]",
    "Can you recommend a [dentist|hairdresser|vet] near [the station|the old town] who is [open late|gentle]",
    "My [laptop|tablet|printer] [freezes|prints blank pages|shuts down] whenever I [open mail|plug it in]",
    "What is the [capital|largest lake|national dish] of [Mongolia|Bolivia|Latvia]",
    "Tell me a [joke|riddle|short story] about [gardeners|penguins|tax inspectors]",
    "How many [steps|calories|hours of sleep] should a [child|grown-up|runner] get a day",
    "We offer [search ranking|cheap printing|office cleaning] for your firm, [reply for a quote|first month free]",
    "The [bus|tram|night train] to [the airport|the coast] was [late|full] again, whom do I complain to",
    "Is [guitar|Spanish|chess] hard to learn [at forty|alone|with little time]",
    "My [kitten|parrot|puppy] will not [eat|sleep|stay alone], is that [normal|a worry]",
]

OLD_SCHEME: dict[str, str] = {  # the labels of the first help desk: merged by team, some only renamed
    "delivery_delay": "shipping",
    "delivery_address_change": "shipping",
    "damaged_on_arrival": "order_complaint",
    "wrong_item_received": "order_complaint",
    "refund_request": "refunds",
    "refund_status": "refunds",
    "payment_declined": "billing",
    "charged_twice": "billing",
    "invoice_request": "receipt_copy",
    "discount_code_problem": "voucher",
    "pause_subscription": "club_membership",
    "cancel_subscription": "club_membership",
    "device_offline": "technical_issue",
    "device_hardware_fault": "technical_issue",
    "plant_not_growing": "plant_not_growing",
    "login_problem": "account_access",
}
COPIED = "helpdesk_team"  # the source that the near-duplicate one repeats
SWAPPED = ("refund_request", "refund_status")
NEIGHBOUR: dict[str, str] = {  # the intent that a careless reader takes for this one
    "delivery_delay": "delivery_address_change",
    "delivery_address_change": "delivery_delay",
    "damaged_on_arrival": "wrong_item_received",
    "wrong_item_received": "damaged_on_arrival",
    "refund_request": "refund_status",
    "refund_status": "refund_request",
    "payment_declined": "charged_twice",
    "charged_twice": "payment_declined",
    "invoice_request": "charged_twice",
    "discount_code_problem": "payment_declined",
    "pause_subscription": "cancel_subscription",
    "cancel_subscription": "pause_subscription",
    "device_offline": "device_hardware_fault",
    "device_hardware_fault": "device_offline",
    "plant_not_growing": "device_hardware_fault",
    "login_problem": "device_offline",
}


@dataclass(frozen=True)
class Source:
    """One file of the pool. ``noise`` is the share of labels made wrong on purpose, None where the kind decides."""

    name: str
    prefix: str
    kind: str
    rows: int
    channel: str
    registers: Mapping[str, float]
    noise: float | None
    story: str


MIXED = {"plain": 6, "terse": 3, "polite": 3, "angry": 1.5, "typos": 2, "chatty": 2.5}
SOURCES = (
    Source("helpdesk_team", "hd", "clean", 280, "email", MIXED, 0.0,
           "labelled by senior agents and checked twice"),
    Source("evening_shift", "es", "label-noise", 140, "email", MIXED, 0.2,
           "labelled in a hurry: 20 % of the labels are wrong"),
    Source("chat_widget", "cw", "label-noise", 170, "chat", {**MIXED, "terse": 6, "typos": 6}, 0.4,
           "labelled by keyword rules: 40 % of the labels are wrong"),
    Source("crowd_batch", "cb", "label-noise", 170, "web form", MIXED, 0.6,
           "labelled by unchecked crowd workers: 60 % of the labels are wrong"),
    Source("partner_desk", "pd", "confuser", 130, "phone note", {**MIXED, "plain": 8}, None,
           "always swaps `refund_request` and `refund_status`; all other labels are right"),
    Source("archive_2019", "ar", "outdated-scheme", 140, "email", {**MIXED, "polite": 6}, None,
           "has the labels of an older scheme, which were later split or renamed; one label is still the same"),
    Source("community_forum", "cf", "off-topic", 70, "forum", MIXED, None,
           "no customer requests; every row has a random label"),
    Source("crm_export", "ce", "near-duplicates", 100, "email", MIXED, 0.0,
           "25 messages of helpdesk_team, each four times, exact or with small edits; all labels are right"),
)  # fmt: skip


def fill(frame: str, dice: Dice, side: str, said: dict[str, str] | None = None) -> str:
    """One wording of a frame: choices drawn, then slots. ``said`` keeps a message's values the same throughout."""
    known = {} if said is None else said

    def slot(found: re.Match[str]) -> str:
        name = found[1]
        if name == "order":
            number = f"{dice.pick(['order', 'order number', 'order no.'])} SW-{dice.between(10000, 99999)}"
            value = "this order" if name in known else number
        else:
            value = known.get(name) or dice.pick(NAMES[side] if name == "name" else SLOTS[side][name])
        known[name] = value
        return value

    chosen = re.sub(r"\[([^\]]*)\]", lambda found: dice.pick(found[1].split("|")), frame)
    text = re.sub(r"\{(\w+)\}", slot, chosen)
    # "no the lamp" is no English: such a word swallows the article of the value that follows it
    return re.sub(r"\b([Mm]y|[Nn]o|missing|returned) (?:the|an?|my) (?=\w)", r"\1 ", text)


def sentence(text: str, end: str) -> str:
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else end)


ASKING = re.compile(
    r"^(?!could not\b|what (?:i|was)\b)"
    r"(where|when|what|why|how|can|could|is|does|do|are|am|any|which|would|has|was|who|will|should)\b",
    re.I,
)


def misspell(text: str, dice: Dice, slips: int) -> str:
    """``slips`` slips of the finger, each in a word of five letters or more: letters swapped, lost or doubled."""
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if len(word) >= 5 and word.isalpha()]
    for i in dice.shuffled(long)[:slips]:
        word, at = words[i], dice.between(1, len(words[i]) - 3)
        words[i] = dice.pick([
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
        ])  # fmt: skip
    return " ".join(words)


def speak(cores: Sequence[str], register: str, dice: Dice, side: str) -> str:
    """What a message has to say, in one sentence or more, in the register in which its writer speaks."""
    sentences = [sentence(core, "?" if ASKING.match(core) and "?" not in core else ".") for core in cores]
    whole = " ".join(sentences)

    def close(kind: str) -> str:
        return fill(dice.pick(CLOSERS[side][kind]), dice, side)

    if register == "terse":
        return re.sub(r"^(please|can you|i need|i want to) ", "", cores[0].lower()).replace(",", "")
    if register == "polite":
        parts = [dice.pick(OPENERS[side]["polite"]), whole, close("polite") if dice.chance(0.7) else ""]
    elif register == "angry":
        shout = whole.upper() if dice.chance(0.15) else whole.rstrip(".?") + dice.pick(["!", "!!", "?!", "."])
        parts = [dice.pick(OPENERS[side]["angry"]), shout, close("angry") if dice.chance(0.6) else ""]
    elif register == "typos":
        slipped = misspell(whole, dice, 1 + len(whole) // 40)
        parts = [slipped.lower() if dice.chance(0.6) else slipped, close("detail").lower() if dice.chance(0.2) else ""]
    elif register == "chatty":
        stories = dice.shuffled(STORIES[side])[: 2 if dice.chance(0.3) else 1]
        parts = [*stories, whole, close("polite") if dice.chance(0.3) else ""]
    else:
        parts = [whole, close("detail") if dice.chance(0.4) else ""]
    return " ".join(part for part in parts if part)


class Apart:
    """Texts taken so far; a new one is taken only while it stays apart from all of them."""

    def __init__(self) -> None:
        self._taken: list[frozenset[str]] = []

    def draw(self, make: Callable[[], str]) -> str:
        for _ in range(500):
            text = make()
            found = grams(text)
            if all(jaccard(found, other) < APART for other in self._taken):
                self._taken.append(found)
                return text
        raise RuntimeError("the grammar has run out of wordings that differ enough")


def even(labels: Sequence[T], n: int) -> list[T]:
    """``n`` labels, each as often as the others, give or take one."""
    return [labels[i % len(labels)] for i in range(n)]


def message(intent: str, registers: Mapping[str, float], dice: Dice, side: str) -> str:
    """A message with an intent. Held-out ones say something familiar of new things, or say it in new words."""
    frames = FRAMES[intent]["pool" if side == "held" and dice.chance(FAMILIAR) else side]
    said: dict[str, str] = {}
    cores = [fill(frame, dice, side, said) for frame in dice.shuffled(frames)[: 2 if dice.chance(TALKATIVE) else 1]]
    return speak(cores, dice.weighted(registers), dice, side)


def intents_of(source: Source) -> list[str]:
    """The true intents of a source's rows; the confuser meets its two intents in half of its rows."""
    if source.kind != "confuser":
        return even(list(INTENTS), source.rows)
    rest = [intent for intent in INTENTS if intent not in SWAPPED]
    return even(SWAPPED, source.rows // 2) + even(rest, source.rows - source.rows // 2)


def labels_for(source: Source, true: Sequence[str], dice: Dice) -> list[str]:
    """The labels a source puts on rows whose true intents are ``true``."""
    if source.kind == "confuser":
        swap = dict(zip(SWAPPED, reversed(SWAPPED), strict=True))
        return [swap.get(intent, intent) for intent in true]
    if source.kind == "outdated-scheme":
        return [OLD_SCHEME[intent] for intent in true]
    wrong = set(dice.shuffled(range(len(true)))[: round((source.noise or 0.0) * len(true))])
    return [wrong_label(intent, dice) if i in wrong else intent for i, intent in enumerate(true)]


def wrong_label(intent: str, dice: Dice) -> str:
    """Any wrong label, the neighbour's more often than not: hands slip to what is near."""
    if dice.chance(SLIP):
        return NEIGHBOUR[intent]
    return dice.pick([label for label in INTENTS if label != intent])


def edited(text: str, dice: Dice) -> str:
    """A near duplicate, no exact one: what exports, retyping and forwarding do to a message."""
    edits: list[Callable[[], str]] = [
        lambda: misspell(text, dice, 1),
        lambda: f"Fwd: {text}",
        lambda: f"{text} {dice.pick(['Thx', 'Bye', 'Ta'])}",
        lambda: f"{dice.pick(['Hey', 'Yo', 'Hi'])} {text}",
        lambda: text.rstrip(".?!") + dice.pick(["...", "??", " :(", "!"]),
    ]
    original = grams(text)
    for _ in range(500):
        copy = dice.pick(edits)()
        if ALIKE <= jaccard(grams(copy), original) < 1:
            return copy
    raise RuntimeError(f"no small edit of {text!r} was found")


def support(seed: int, apart: Apart) -> tuple[dict[str, list[Row]], list[Row]]:
    """The rows of each file of ``support/``, whose texts are ``apart``, and the truth about every pool row."""
    pool: dict[str, list[Row]] = {}
    for source in SOURCES:
        pool[source.name] = source_rows(source, pool, apart, Dice(seed, "support", source.name))
    files = {
        f"pool/{source.name}": [
            {"id": row["id"], "input": row["input"], "output": row["output"], "channel": source.channel}
            for row in pool[source.name]
        ]
        for source in SOURCES
    }
    for split in ("validation", "test"):
        files[split] = clean_rows(split, 200, apart, Dice(seed, "support", split))
    return files, [told(row, name) for name, rows in pool.items() for row in rows]


def told(row: Row, source: str) -> Row:
    """The truth about a pool row."""
    truth = {"id": row["id"], "source": source, "true": row["true"], "correct": row["output"] == row["true"]}
    return truth | {key: row[key] for key in ("copy_of",) if key in row}


def source_rows(source: Source, pool: Mapping[str, list[Row]], apart: Apart, dice: Dice) -> list[Row]:
    """A source's rows, its labels as it would put them and beside them the true intents (None: not in the scheme)."""
    ids = [f"{source.prefix}-{i:04d}" for i in range(1, source.rows + 1)]
    if source.kind == "near-duplicates":
        return copies(pool[COPIED], ids, dice)
    true: list[str | None]
    if source.kind == "off-topic":
        true, labels = [None] * len(ids), [dice.pick(list(INTENTS)) for _ in ids]
    else:
        known = dice.shuffled(intents_of(source))
        true, labels = [*known], labels_for(source, known, dice)

    def text(intent: str | None) -> str:
        if intent is None:
            return speak([fill(dice.pick(OFF_TOPIC), dice, "pool")], dice.weighted(source.registers), dice, "pool")
        return message(intent, source.registers, dice, "pool")

    return [
        {"id": name, "input": apart.draw(partial(text, intent)), "output": label, "true": intent}
        for name, label, intent in zip(ids, labels, true, strict=True)
    ]


def clean_rows(split: str, n: int, apart: Apart, dice: Dice) -> list[Row]:
    """Validation or test rows, intents as even as can be."""
    return [
        {
            "id": f"s{split[0]}-{i:04d}",
            "input": apart.draw(partial(message, intent, MIXED, dice, "held")),
            "output": intent,
        }
        for i, intent in enumerate(dice.shuffled(even(list(INTENTS), n)), 1)
    ]


def copies(originals: Sequence[Row], ids: Sequence[str], dice: Dice) -> list[Row]:
    """Four copies of each of a few originals, about one in six of them exact."""
    # an edit of a few letters weighs little in a long message alone
    base = dice.shuffled([row for row in originals if len(row["input"]) >= 60])[: len(ids) // 4]
    order = dice.shuffled([row for row in base for _ in range(4)])
    exact = set(dice.shuffled(range(len(ids)))[: len(ids) // 6])
    return [
        {
            "id": new,
            "input": row["input"] if i in exact else edited(row["input"], dice),
            "output": row["output"],
            "true": row["true"],
            "copy_of": row["id"],
        }
        for i, (new, row) in enumerate(zip(ids, order, strict=True))
    ]


# --------------------------------------------------------------------------------------------------------------
# Facts: an invented world of about 140 entities in ten kinds, four facts each, and documents that speak of them.
# --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Relation:
    """``value`` names the kind of answer; {e} is the entity, {v} the value, in questions and in statements."""

    name: str
    value: str
    questions: tuple[str, ...]
    statements: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    name: str
    pattern: str
    relations: tuple[Relation, ...]
    fillers: tuple[str, ...]


KINDS: tuple[Kind, ...] = (
    Kind("observatory", "{s} Observatory", (
        Relation("opened", "year", (
            "In which year did {e} open?", "When was first light seen at {e}?", "Since what year has {e} been at work?",
        ), (
            "{e} took up its work in {v}.", "First light at {e} dates from {v}.",
            "The dome of {e} was inaugurated in {v}.", "Astronomers have used {e} since {v}.",
        )),
        Relation("mirror", "metres_small", (
            "How wide is the main mirror of {e}?", "What is the aperture of the telescope at {e}?",
            "Which diameter does the primary mirror of {e} have?",
        ), (
            "The main mirror of {e} measures {v} across.", "{e} houses a reflector with an aperture of {v}.",
            "At {v}, the primary mirror of {e} fills most of its dome.",
        )),
        Relation("founder", "person", (
            "Who founded {e}?", "Whose initiative was {e}?", "Which person set up {e}?",
        ), (
            "{e} was founded by {v}.", "It was {v} who raised the money for {e}.",
            "{v} set up {e} against the advice of the academy.",
        )),
        Relation("ridge", "place", (
            "On which ridge does {e} stand?", "Where was {e} built?", "What is the name of the height {e} sits on?",
        ), (
            "{e} stands on the ridge of {v}.", "The site chosen for {e} was {v}.",
            "From {v}, where {e} was built, the sea of clouds is often below.",
        )),
    ), (
        "The nights are dry in autumn and the seeing is steady.", "Guided tours end with a cup of broth in the annex.",
        "Its library keeps a set of hand-drawn comet charts.", "A narrow stair leads up to the dome.",
        "The staff live on site for a fortnight at a time.",
    )),
    Kind("ferry", "MV {s}", (
        Relation("launched", "year", (
            "When was the {e} launched?", "In what year did the {e} first take to the water?",
            "Which year saw the launch of the {e}?",
        ), (
            "The {e} slid into the water in {v}.", "Launched in {v}, the {e} replaced a converted trawler.",
            "The year {v} saw the launch of the {e}.",
        )),
        Relation("yard", "place", (
            "At which yard was the {e} built?", "Where was the hull of the {e} laid down?",
            "Which shipyard built the {e}?",
        ), (
            "The {e} was built at the {v} yard.", "Shipwrights at {v} laid down the hull of the {e}.",
            "A bronze plate on the {e} names {v} as her place of construction.",
        )),
        Relation("cars", "cars", (
            "How many cars can the {e} carry?", "What is the vehicle capacity of the {e}?",
            "How many cars fit on the deck of the {e}?",
        ), (
            "The deck of the {e} takes {v}.", "There is room for {v} aboard the {e}.",
            "When fully loaded, the {e} carries {v} and a mail van.",
        )),
        Relation("captain", "person", (
            "Who was the first captain of the {e}?", "Which captain took the {e} on her maiden crossing?",
            "Under whose command did the {e} enter service?",
        ), (
            "The first captain of the {e} was {v}.", "On her maiden crossing the {e} was commanded by {v}.",
            "{v} took the {e} into service and stayed until retirement.",
        )),
    ), (
        "The crossing is rough when the wind stands in the west.", "Her horn is said to be heard two valleys inland.",
        "The galley is known for its pea soup.", "In winter the timetable is cut to a morning and an evening run.",
        "Commuters have fixed seats by custom.",
    )),
    Kind("dialect", "{s} dialect", (
        Relation("grammar", "person", (
            "Who wrote the first grammar of the {e}?", "Which scholar first described the {e} in a grammar?",
            "Whose grammar of the {e} came first?",
        ), (
            "The first grammar of the {e} was written by {v}.", "{v} was the first to set down the rules of the {e}.",
            "Scholars owe the earliest grammar of the {e} to {v}.",
        )),
        Relation("vowels", "vowels", (
            "How many vowels does the {e} distinguish?", "How large is the vowel inventory of the {e}?",
            "What is the number of vowels in the {e}?",
        ), (
            "The {e} distinguishes {v}.", "With {v}, the {e} is richer than its neighbours.",
            "Field recordings of the {e} show {v}.",
        )),
        Relation("valley", "place", (
            "In which valley is the {e} spoken?", "Where do speakers of the {e} live?",
            "Which valley is home to the {e}?",
        ), (
            "The {e} is spoken in the valley of {v}.", "Nearly all speakers of the {e} live in {v}.",
            "{v} is the last place where children still learn the {e}.",
        )),
        Relation("survey", "year", (
            "When was the {e} first surveyed?", "In what year did the first survey of the {e} take place?",
            "Which year did linguists first record the {e}?",
        ), (
            "The {e} was first surveyed in {v}.", "Recordings of the {e} begin in {v}.",
            "In {v} a team with wax cylinders visited the speakers of the {e}.",
        )),
    ), (
        "It has a separate word for snow that falls on water.", "Its verbs agree with the weather in some songs.",
        "A weekly radio hour keeps it in the ears of the young.", "Proverbs are its best-known export.",
        "Loans from the speech of pedlars are common.",
    )),
    Kind("cheese", "{s} cheese", (
        Relation("ageing", "months", (
            "How long does {e} ripen?", "For how many months is {e} aged?", "What is the ripening time of {e}?",
        ), (
            "{e} ripens for {v}.", "The wheels of {e} stay in the cellar for {v}.",
            "Only after {v} may a wheel be sold as {e}.",
        )),
        Relation("wrapping", "wrapping", (
            "In what is {e} wrapped?", "Which leaves or cloth go around {e}?", "What covers a wheel of {e}?",
        ), (
            "Each wheel of {e} is wrapped in {v}.", "Traditionally {v} go around {e}.",
            "You know {e} by its coat of {v}.",
        )),
        Relation("inventor", "person", (
            "Who first made {e}?", "To whom is {e} credited?", "Which dairy keeper invented {e}?",
        ), (
            "{e} was first made by {v}.", "The recipe of {e} is credited to {v}.",
            "{v} came upon {e} by forgetting a vat overnight.",
        )),
        Relation("market", "place", (
            "In which town is {e} traditionally sold?", "Where is the market for {e} held?",
            "Which market town is known for {e}?",
        ), (
            "{e} is traditionally sold in {v}.", "The market for {e} is held at {v}.",
            "Dealers come to {v} in October to taste the new {e}.",
        )),
    ), (
        "Its rind is brushed with weak cider.", "The taste is nutty with a hint of smoke.",
        "Small dairies make it in the summer pastures.", "It melts badly and is eaten with pears.",
        "A guild watches over the size of the wheels.",
    )),
    Kind("lighthouse", "{s} Lighthouse", (
        Relation("height", "metres_mid", (
            "How tall is {e}?", "What is the height of the tower of {e}?", "How high does {e} rise?",
        ), (
            "{e} is {v} tall.", "The tower of {e} rises {v} above its base.",
            "With a height of {v}, {e} is seen from three islands.",
        )),
        Relation("lit", "year", (
            "When was {e} first lit?", "In which year did the lamp of {e} go into service?",
            "What year did {e} begin to shine?",
        ), (
            "{e} was first lit in {v}.", "The lamp of {e} has burned since {v}.",
            "In {v} the oil burner of {e} was lit for the first time.",
        )),
        Relation("signal", "seconds", (
            "How often does {e} flash?", "What is the period of the light of {e}?",
            "At what interval does the beam of {e} return?",
        ), (
            "{e} shows one white flash every {v}.", "The beam of {e} comes round once in {v}.",
            "Sailors know {e} by its period of {v}.",
        )),
        Relation("keeper", "person", (
            "Who was the last keeper of {e}?", "Which keeper left {e} when it was automated?",
            "Who tended {e} before the machines took over?",
        ), (
            "The last keeper of {e} was {v}.", "{v} tended {e} until it was automated.",
            "When the lamp of {e} went automatic, {v} handed in the keys.",
        )),
    ), (
        "Gulls nest on the gallery in spring.", "The stone was brought by barge from the mainland.",
        "A fog bell hangs on the seaward wall.", "The cottage beside it is let to painters.",
        "Its stair is open on the first Sunday of the month.",
    )),
    Kind("apple", "{s} Pippin", (
        Relation("breeder", "person", (
            "Who raised the {e}?", "Which gardener bred the {e}?", "To whose garden does the {e} go back?",
        ), (
            "The {e} was raised by {v}.", "{v} bred the {e} from a chance seedling.",
            "Pomologists trace the {e} to the garden of {v}.",
        )),
        Relation("described", "year", (
            "In what year was the {e} first described?", "When did the {e} enter the fruit catalogues?",
            "Since which year is the {e} on record?",
        ), (
            "The {e} was first described in {v}.", "Catalogues list the {e} from {v} on.",
            "A medal was given to the {e} in {v}, the year it was first described.",
        )),
        Relation("parish", "place", (
            "From which parish does the {e} come?",
            "Where did the {e} originate?", "Which parish is the {e} from?",
        ), (
            "The {e} comes from the parish of {v}.", "The mother tree of the {e} stood at {v}.",
            "{v} is proud to be where the {e} originated.",
        )),
        Relation("harvest", "season", (
            "When is the {e} picked?", "What is the harvest time of the {e}?", "At which time of year is the {e} ripe?",
        ), (
            "The {e} is picked in {v}.", "Harvest of the {e} falls in {v}.", "Ripe in {v}, the {e} keeps in straw.",
        )),
    ), (
        "The flesh is cream and a little dry.", "It bears every other year unless thinned.",
        "Cooks prize it for tarts.", "The blossom is late and escapes most frosts.",
        "Scab is rare on the leaves.",
    )),
    Kind("railway", "{s} Light Railway", (
        Relation("gauge", "millimetres", (
            "What is the gauge of the {e}?", "How far apart are the rails of the {e}?",
            "To which gauge was the {e} laid?",
        ), (
            "The {e} was laid to a gauge of {v}.", "The rails of the {e} are {v} apart.",
            "An odd gauge of {v} kept the {e} from using second-hand wagons.",
        )),
        Relation("closed", "year", (
            "When did the {e} close?", "In which year did the last train run on the {e}?",
            "What year was the {e} shut down?",
        ), (
            "The {e} closed in {v}.", "The last train on the {e} ran in {v}.",
            "Traffic on the {e} ended in {v} after a landslip.",
        )),
        Relation("engineer", "person", (
            "Which engineer built the {e}?", "Who engineered the {e}?", "Whose plans was the {e} built to?",
        ), (
            "The {e} was engineered by {v}.", "{v} drew the plans of the {e}.",
            "For the viaducts of the {e} the company hired {v}.",
        )),
        Relation("terminus", "place", (
            "Where did the {e} end?", "What was the upper terminus of the {e}?", "To which place did the {e} run?",
        ), (
            "The {e} ended at {v}.", "{v} was the upper terminus of the {e}.",
            "From the harbour the {e} climbed to {v}.",
        )),
    ), (
        "Slate and milk churns were the main freight.", "A single carriage survives in a barn.",
        "Passengers were asked to help push on wet leaves.", "The trackbed is a cycle path today.",
        "Its tickets were printed on green card.",
    )),
    Kind("hut", "{s} Hut", (
        Relation("altitude", "metres_high", (
            "At what altitude does the {e} lie?", "How high up is the {e}?", "What is the elevation of the {e}?",
        ), (
            "The {e} lies at an altitude of {v}.", "Walkers reach the {e} at {v} after a steep gully.",
            "Built at {v}, the {e} is often snowed in until June.",
        )),
        Relation("beds", "beds", (
            "How many beds does the {e} have?",
            "How many people can sleep at the {e}?", "How big is the dormitory of the {e}?",
        ), (
            "The {e} has {v}.", "There are {v} in the dormitory of the {e}.",
            "Since it was rebuilt, the {e} offers {v}.",
        )),
        Relation("warden", "person", (
            "Who was the first warden of the {e}?",
            "Which warden opened the {e}?", "Who ran the {e} in its first years?",
        ), (
            "The first warden of the {e} was {v}.", "{v} opened the {e} and ran it for years.",
            "In its early seasons the {e} was in the hands of {v}.",
        )),
        Relation("lake", "place", (
            "Above which lake does the {e} stand?",
            "What is the lake below the {e} called?", "Which lake can be seen from the {e}?",
        ), (
            "The {e} stands above Lake {v}.", "Lake {v} glitters below the {e}.",
            "From the {e} a path drops to Lake {v}.",
        )),
    ), (
        "Bread is baked every other night.", "A mule carries up the post.", "The stove is lit at four.",
        "Marmots whistle around the spring.", "Boots stay in the porch by old rule.",
    )),
    Kind("fair", "{s} Lantern Fair", (
        Relation("day", "day", (
            "On which day is the {e} held?", "When does the {e} take place?", "What is the date of the {e}?",
        ), (
            "The {e} is held on {v}.", "Every year on {v} the lamps of the {e} are lit.",
            "On {v} the town goes dark for the {e}.",
        )),
        Relation("first", "year", (
            "In which year was the {e} first held?", "When did the {e} begin?", "Since when has the {e} existed?",
        ), (
            "The {e} was first held in {v}.", "The custom of the {e} goes back to {v}.",
            "In {v} some bakers began what is now the {e}.",
        )),
        Relation("honours", "person", (
            "Whom does the {e} honour?",
            "In whose memory is the {e} celebrated?", "Which person is remembered at the {e}?",
        ), (
            "The {e} honours {v}.", "It is in memory of {v} that the {e} is celebrated.",
            "A straw figure at the {e} stands for {v}.",
        )),
        Relation("square", "place", (
            "On which square does the {e} end?", "Where is the last lantern of the {e} hung?",
            "At what square does the procession of the {e} arrive?",
        ), (
            "The procession of the {e} ends on {v} Square.", "{v} Square is where the last lantern of the {e} is hung.",
            "All paths of the {e} lead to {v} Square.",
        )),
    ), (
        "Children carry turnips with carved faces.", "Fiddlers walk backwards in front.",
        "Honey cake is given to strangers.", "Rain has never stopped it, people say.",
        "The lanterns are burned at midnight.",
    )),
    Kind("lyre", "{s} lyre", (
        Relation("strings", "strings", (
            "How many strings does the {e} have?", "With how many strings is the {e} fitted?",
            "What is the number of strings on the {e}?",
        ), (
            "The {e} has {v}.", "Players tune the {v} of the {e} by ear.",
            "The {e} is fitted with {v} of gut.",
        )),
        Relation("wood", "wood", (
            "From which wood is the {e} made?",
            "What wood forms the body of the {e}?", "Which timber is used for the {e}?",
        ), (
            "The body of the {e} is carved from {v}.", "Makers of the {e} use {v} for the body.",
            "Nothing but {v} gives the {e} its sound.",
        )),
        Relation("maker", "person", (
            "Who built the first {e}?", "Which maker devised the {e}?", "To which workshop owner do we owe the {e}?",
        ), (
            "The first {e} was built by {v}.", "{v} devised the {e} for a travelling choir.",
            "We owe the {e} to {v}, who ran a workshop for wheels.",
        )),
        Relation("concert", "place", (
            "Where was the {e} first heard in public?", "In which town did the {e} have its first concert?",
            "Which town heard the {e} first?",
        ), (
            "The {e} was first heard in public at {v}.", "The first concert with the {e} took place in {v}.",
            "A church in {v} was where the {e} met its first audience.",
        )),
    ), (
        "It is played across the knees.", "The tone is dry and carries far.", "Few schools still teach it.",
        "Its pegs are turned from bone.", "Dance tunes make up most of its music.",
    )),
)  # fmt: skip

FIRST_NAMES = (
    "Aldith", "Berro", "Calla", "Dorric", "Edla", "Farron", "Gesine", "Hobart", "Ilka", "Jorun", "Kestrel", "Lunet",
    "Merrit", "Nils", "Odila", "Perrin", "Quilla", "Roswin", "Sefa", "Torvald", "Ulla", "Vesper", "Wendel", "Ysolde",
)  # fmt: skip
SURNAME_ENDS = ("ander", "wick", "holt", "mere", "sson", "ling", "ove", "arth", "quist", "ley")
PLACE_ENDS = ("combe", "garth", "fell", "haven", "nock", "dale", "minster", "strand", "thorpe", "wold")
ONSETS = (
    "Br", "Cal", "Dre", "Fen", "Gor", "Hal", "Ist", "Jar", "Kel", "Lor", "Mar", "Nev", "Os", "Pel", "Quen", "Ral",
    "Sker", "Tam", "Ul", "Vel", "Wim", "Yar", "Zan", "Thur", "Ebb", "Corm",
)  # fmt: skip
MIDDLES = ("ad", "en", "ir", "ol", "um", "av", "est", "ing", "orr", "ul")
STEM_ENDS = ("a", "mar", "ick", "ow", "eth", "by", "und", "ash")
WRAPPINGS = (
    "chestnut leaves", "nettle leaves", "vine leaves", "birch bark", "waxed linen", "fern fronds", "hay ropes",
    "walnut leaves", "spruce bark", "plum leaves", "cabbage leaves", "beeswax cloths",
)  # fmt: skip
WOODS = (
    "pear wood", "bog oak", "wild cherry", "elder wood", "larch", "yew", "black alder", "plum wood",
    "hornbeam", "rowan",
)  # fmt: skip
SEASONS = tuple(f"{part} {month}" for month in ("August", "September", "October") for part in ("early", "mid", "late"))
MONTHS = ("February", "March", "May", "June", "September", "November")
COUNTED = {
    "cars": (8, 64),
    "vowels": (5, 19),
    "months": (3, 30),
    "seconds": (5, 45),
    "beds": (12, 90),
    "strings": (5, 27),
}
METRES = {"metres_mid": (14, 68, 1), "metres_high": (1205, 2985, 5)}

MISLEADING: dict[str, tuple[str, ...]] = {
    "hedged": (
        "Some locals insist that {w}, though nobody could show a record.",
        "It is sometimes claimed that {w}, a story that recent writers doubt.",
        "A visitor's letter mentions in passing that {w}, without giving a source.",
    ),
    "outdated": (
        "An older guide, withdrawn since, still states that {w}.",
        "Before the archive was opened, handbooks would say that {w}.",
        "The encyclopaedia of the last century has it that {w}.",
    ),
    "wrong": ("{W}", "As everyone here knows, {w}.", "{W}"),
    "confusable": ("{W}",),
}
TITLES: dict[str, tuple[str, ...]] = {
    "plain": ("{e}", "{e} (overview)", "Gazetteer: {e}", "A short history of {e}"),
    "hedged": ("Traveller's notes: {e}", "Letters about {e}", "Hearsay around {e}"),
    "outdated": ("Old guide book: {e}", "{e} in the previous edition"),
    "wrong": ("{e}: ten things to know", "Visit {e}!", "{e}"),
}


def name(dice: Dice, ends: Sequence[str]) -> str:
    return dice.pick(ONSETS) + dice.pick(MIDDLES) + dice.pick(ends)


def value(kind: str, dice: Dice) -> str:
    """One value of a kind of answer, as it is written in statements and as the reference answer."""
    if kind == "year":
        return str(dice.between(1781, 1979))
    if kind == "person":
        return f"{dice.pick(FIRST_NAMES)} {name(dice, SURNAME_ENDS)}"
    if kind == "place":
        return name(dice, PLACE_ENDS)
    if kind == "metres_small":
        return f"{dice.between(6, 48) / 10:.1f} metres"
    if kind == "millimetres":
        return f"{dice.between(55, 105) * 10} millimetres"
    if kind in METRES:
        low, high, step = METRES[kind]
        return f"{dice.between(low // step, high // step) * step} metres"
    if kind in COUNTED:
        return f"{dice.between(*COUNTED[kind])} {kind}"
    if kind == "day":
        return f"{dice.between(2, 28)} {dice.pick(MONTHS)}"
    return dice.pick({"wrapping": WRAPPINGS, "wood": WOODS, "season": SEASONS}[kind])


def aliases(kind: str, answer: str) -> list[str]:
    """All accepted forms of an answer, the reference first."""
    head, _, tail = answer.rpartition(" ")
    if kind == "person":
        return [answer, tail]
    if kind == "millimetres":
        return [answer, f"{head} mm", head]
    if kind.startswith("metres"):
        return [answer, f"{head} m", head]
    if kind in COUNTED:
        return [answer, head]
    if kind == "day":
        return [answer, f"{tail} {head}"]
    return [answer]


def holds(text: str, phrase: str) -> bool:
    """Whether ``phrase`` stands in ``text`` as whole words, whatever the case."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text, re.I) is not None


@dataclass(frozen=True)
class Entity:
    kind: Kind
    stem: str
    values: Mapping[str, str]  # relation name -> value

    @property
    def title(self) -> str:
        return self.kind.pattern.format(s=self.stem)

    def states(self, relation: Relation, value: str, dice: Dice) -> str:
        return dice.pick(relation.statements).format(e=self.title, v=value)


def world(dice: Dice, each: int) -> list[Entity]:
    """``each`` entities of every kind, kinds in turn, no stem used twice."""
    stems: list[str] = []
    while len(stems) < each * len(KINDS):
        stem = name(dice, STEM_ENDS)
        if stem not in stems:
            stems.append(stem)
    return [
        Entity(kind, stem, {relation.name: value(relation.value, dice) for relation in kind.relations})
        for stem, kind in zip(stems, even(KINDS, len(stems)), strict=True)
    ]


def twin(entity: Entity, relation: Relation, wrong: str, dice: Dice) -> Entity:
    """Another entity whose name is easily taken for this one's."""
    end = dice.pick([end for end in ("ar", "is", "on", "ey") if not entity.stem.endswith(end)])
    return Entity(entity.kind, entity.stem.rstrip("aeiou") + end, {relation.name: wrong})


# The words that open a statement and are no names.
STARTERS = frozenset((
    "The", "First", "Astronomers", "At", "It", "From", "Launched", "Shipwrights", "A", "There", "When", "On",
    "Scholars", "With", "Field", "Nearly", "Recordings", "In", "Only", "Each", "Traditionally", "You", "Dealers",
    "Sailors", "Pomologists", "Catalogues", "Harvest", "Ripe", "An", "Traffic", "For", "Walkers", "Built", "Since",
    "Every", "All", "Players", "Makers", "Nothing", "We",
))  # fmt: skip


def lowered(statement: str) -> str:
    """A statement as the clause of a longer sentence."""
    body = statement.rstrip(".")
    first = body.split(" ", 1)[0]
    return body[0].lower() + body[1:] if first in STARTERS else body


def document(title: str, told: str, fillers: Sequence[str], dice: Dice) -> str:
    """A title line, then the sentence that matters among one or two that do not."""
    said = [told, *dice.shuffled(fillers)[: dice.between(1, 2)]]
    if dice.chance(0.5):
        said = [said[1], said[0], *said[2:]]
    return f"{title}\n{' '.join(said)}"


def plain(entity: Entity, relation: Relation, dice: Dice, told: str = "") -> str:
    """A document that states what is true of an entity, in the words of ``told`` if given."""
    told = told or entity.states(relation, entity.values[relation.name], dice)
    return document(dice.pick(TITLES["plain"]).format(e=entity.title), told, entity.kind.fillers, dice)


def misleading(entity: Entity, relation: Relation, wrong: str, way: str, dice: Dice) -> str:
    """A document from which a hasty reader takes ``wrong`` for the answer, in one of four ways."""
    if way == "confusable":
        return plain(twin(entity, relation, wrong, dice), relation, dice)
    told = entity.states(relation, wrong, dice)
    wrapped = dice.pick(MISLEADING[way]).format(w=lowered(told), W=told)
    return document(dice.pick(TITLES[way]).format(e=entity.title), wrapped, entity.kind.fillers, dice)


def fact(id: str, entity: Entity, relation: Relation, entities: Sequence[Entity], dice: Dice) -> Row:
    """One question with its ten documents in random order and the truth about each of them."""
    answer = entity.values[relation.name]
    accepted = aliases(relation.value, answer)

    def silent(make: Callable[[], str], taken: Sequence[str]) -> str:
        """A document that does not hold the answer and is none of those taken."""
        while True:
            text = make()
            if text not in taken and not any(holds(text, form) for form in accepted):
                return text

    def other_value() -> str:
        while (drawn := value(relation.value, dice)) == answer or holds(drawn, accepted[-1]):
            pass
        return drawn

    statements = [frame.format(e=entity.title, v=answer) for frame in dice.shuffled(relation.statements)]
    found = [plain(entity, relation, dice, told) for told in statements[: dice.weighted({1: 40, 2: 35, 3: 25})]]
    # most false documents tell the same false tale, which is what makes them dangerous
    tale = other_value()
    wrongs: list[str] = []
    ways: list[str] = []
    traps: list[str] = []
    for _ in range(dice.weighted({0: 30, 1: 30, 2: 25, 3: 15})):
        wrongs.append(tale if dice.chance(0.6) else other_value())
        ways.append(dice.weighted({"wrong": 35, "hedged": 20, "outdated": 20, "confusable": 25}))
        traps.append(silent(lambda: misleading(entity, relation, wrongs[-1], ways[-1], dice), traps))
    same = [other for other in entities if other.kind is entity.kind and other is not entity]

    def distractor() -> str:
        draw = dice.below(10)
        if draw < 2:  # the right entity, another of its facts
            return plain(entity, dice.pick([r for r in entity.kind.relations if r is not relation]), dice)
        other = dice.pick(same if draw < 7 else entities)
        if draw < 6:  # the right relation, another entity
            return plain(other, relation if other.kind is entity.kind else dice.pick(other.kind.relations), dice)
        return plain(other, dice.pick(other.kind.relations), dice)

    rest: list[str] = []
    while len(rest) < 10 - len(found) - len(traps):
        rest.append(silent(distractor, rest))
    marked = dice.shuffled(
        [("relevant", text) for text in found]
        + [("misleading", text) for text in traps]
        + [("distractor", text) for text in rest]
    )
    return {
        "id": id,
        "input": dice.pick(relation.questions).format(e=entity.title),
        "output": answer,
        "answers": accepted,
        "context": "\n\n".join(text for _, text in marked),
        "kind": entity.kind.name,
        "relation": relation.name,
        "documents": [truth for truth, _ in marked],
        "misleading_ways": ways,
        "misleading_answers": wrongs,
    }


def facts(seed: int) -> dict[str, list[Row]]:
    """The rows of each file of ``facts/``; no entity asked about in one split is asked about in another."""
    dice = Dice(seed, "facts")
    entities = world(dice, 14)
    order, files, start = dice.shuffled(entities), {}, 0
    for file, rows in (("pool/gazetteer", 300), ("validation", 150), ("test", 100)):
        asked = [
            (entity, relation) for entity in order[start : start + -(-rows // 4)] for relation in entity.kind.relations
        ]
        start += -(-rows // 4)
        prefix = f"f{file[0]}"
        files[file] = [
            fact(f"{prefix}-{i:04d}", entity, relation, entities, dice)
            for i, (entity, relation) in enumerate(dice.shuffled(asked)[:rows], 1)
        ]
    return files


# --------------------------------------------------------------------------------------------------------------
# Writing
# --------------------------------------------------------------------------------------------------------------


def truth_table(truth: Sequence[Row]) -> dict[str, Row]:
    """What is true of each source: what it was made to be, and what the draws made of it."""
    table: dict[str, Row] = {}
    for source in SOURCES:
        rows = [row for row in truth if row["source"] == source.name]
        wrong = sum(not row["correct"] for row in rows)
        table[source.name] = {
            "kind": source.kind,
            "rows": len(rows),
            "noise_rate": source.noise,
            "wrong_labels": wrong,
            "wrong_share": round(wrong / len(rows), 4),
            "about": source.story,
        }
    return table


README = """\
# Sample data

Two invented data sets to try every command on. The truth about every row is known. `benchmarks/sample_data.py`
generates all files from its own word lists; no text is copied, and no person, company or place is real.

    python benchmarks/sample_data.py                          # regenerates every file here, byte for byte
    python benchmarks/sample_data.py --seed 7 --out FOLDER    # other data of the same kind

## `support/`: which demonstrations help?

Messages to the help desk of Sproutwick, an invented company that sells indoor planters (Sill, Nook, Tower, Balcony),
seed pods, and a pod subscription, the Pod Club. `input` is a message, `output` one of {intents} intents, and `channel`
says how the message arrived.

| file | rows | content |
|---|---|---|
| `pool/<source>.jsonl` | {pool} | demonstrations, one file per source |
| `validation.jsonl` | {validation} | queries, all labels right |
| `test.jsonl` | {test} | queries, all labels right |
| `truth.json` | | the intents, the old label scheme, and the truth about each source (the table below) |
| `truth_rows.jsonl` | {pool} | by pool row: `id`, `source`, `true` (right label, or null), `correct`, `copy_of` |

The truth files are for tests and for judging what the tool finds. Do not index them.

| source | kind | rows | wrong labels | share | what is wrong |
|---|---|---|---|---|---|
{sources}

- In the label-noise sources, four of five wrong labels are the most similar intent (such as refund requested and refund
  awaited), the others any other intent. The share of wrong labels is exact.
- Validation and test come from the same generator as the pool, but share none of its products, amounts, dates,
  greetings, asides and names. In two of five sentences the wording is new, too.
- Most messages have two sentences about their request.
- Outside `crm_export`, no two inputs have a Jaccard similarity of {apart} or more on character 5-grams (near
  duplicates: {near}). The edited copies in `crm_export` have a similarity of at least {alike} to their original.

| intent | when | label in the old scheme |
|---|---|---|
{intent_rows}

## `facts/`: which documents and answers can be trusted?

Open questions about an invented world of {entities} entities of {kinds} kinds, with four facts each. Each question has
ten documents in `context`, separated by blank lines; `calibrate` uses them. No LLM can know the answers, but the
documents contain them.

| file | rows |
|---|---|
| `pool/gazetteer.jsonl` | {facts_pool} |
| `validation.jsonl` | {facts_validation} |
| `test.jsonl` | {facts_test} |

`output` is the reference answer, and `answers` lists all accepted forms. No entity is asked about in two files.
`documents` gives the role of each document, in order:

- `relevant` (one to three per question): states the answer, each time in other words
- `misleading` (up to three): leads to one of the `misleading_answers`; `misleading_ways` says how: `wrong` (states it
  as a fact), `hedged` (a rumour), `outdated` (an edition that was withdrawn) or `confusable` (true of an entity with a
  similar name)
- `distractor`: another fact of the same entity, the same fact of another entity, or neither; never an accepted answer

In all files together: {relevant} relevant, {misleading} misleading and {distractor} distractor documents.

## Licence

Made by this project; Apache-2.0, like the project.
"""


def readme(table: Mapping[str, Row], files: Mapping[str, list[Row]]) -> str:
    count = {file: len(rows) for file, rows in files.items()}
    documents = Counter(
        mark for file, rows in files.items() if file.startswith("facts/") for row in rows for mark in row["documents"]
    )
    return README.format(
        intents=len(INTENTS), near=NEAR, apart=APART, alike=ALIKE,
        pool=sum(row["rows"] for row in table.values()),
        validation=count["support/validation"], test=count["support/test"],
        sources="\n".join(
            f"| `{source}` | {row['kind']} | {row['rows']} | {row['wrong_labels']} | {row['wrong_share']:.1%} |"
            f" {row['about']} |"
            for source, row in table.items()
        ),
        intent_rows="\n".join(f"| `{intent}` | {when} | `{OLD_SCHEME[intent]}` |" for intent, when in INTENTS.items()),
        entities=14 * len(KINDS), kinds=len(KINDS), facts_pool=count["facts/pool/gazetteer"],
        facts_validation=count["facts/validation"], facts_test=count["facts/test"], **documents,
    )  # fmt: skip


def make(out: Path, seed: int = SEED) -> None:
    """Write everything below the folder ``out``."""
    support_files, truth = support(seed, Apart())
    files = {f"support/{file}": rows for file, rows in support_files.items()}
    files |= {f"facts/{file}": rows for file, rows in facts(seed).items()}
    table = truth_table(truth)
    known = {"seed": seed, "intents": INTENTS, "old_scheme": OLD_SCHEME, "swapped": SWAPPED, "sources": table}
    texts = {f"{file}.jsonl": jsonl(rows) for file, rows in {**files, "support/truth_rows": truth}.items()}
    texts["support/truth.json"] = json.dumps(known, ensure_ascii=False, indent=2) + "\n"
    texts["README.md"] = readme(table, files)
    for path, text in texts.items():
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())


def jsonl(rows: Sequence[Row]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewrite the sample data.")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="another number gives another draw (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, default=SAMPLE_DATA, help="folder to write to")
    asked = parser.parse_args()
    make(asked.out, asked.seed)


if __name__ == "__main__":
    main()
